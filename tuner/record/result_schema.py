"""`result.json`, version 1, as models: checked in tests, published as a JSON Schema, read here.

Readers must ignore keys they do not know, so that keys may be added within version 1. A key
never changes its meaning or unit and is never removed within a version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    computed_field,
    model_validator,
)

from tuner.load.probes.overload import Overload
from tuner.load.probes.warmup import WarmUp
from tuner.measurement.measurement import Rejected
from tuner.reason import Reason
from tuner.record.confirmation import ChangeUndone, RunNoise
from tuner.record.earlier import result_of_earlier
from tuner.record.proved import ProvedConfig
from tuner.record.reading import UnreadableFileError, read_json
from tuner.record.status import Status
from tuner.score.ratio import Ratio
from tuner.sentences import sentence
from tuner.spec.mistakes import dotted, reason_of
from tuner.spec.slo import Objective

SCHEMA_VERSION = 1


def _empty(value: object) -> bool:
    """For a key that is there only when a run has several models or several streams."""
    return not value


Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
_Objective = Annotated[str, AfterValidator(lambda text: Objective.parse(text) and text)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ResultPart(BaseModel):
    """Part of a result."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Means(ResultPart):
    """Geometric means over the rounds of what was compared; the ratio is of the two."""

    best: NotNegative = Field(description="before changes that made no difference were removed")
    current: NotNegative


class Rounds(ResultPart):
    """In how many rounds each was measured."""

    best: Count
    current: Count = Field(
        description="fewer where it was so far behind that more would have shown nothing"
    )


class Gain(ResultPart):
    """How much better the winner is, or the best other config, than the current one."""

    ratio: Ratio = Field(
        description="times better than the current config; above 1 is better, also when a latency "
        "or memory is minimised; high is the largest gain that is still possible"
    )
    confidence: float = Field(gt=0, lt=1, description="of the interval")
    compared: str | None = Field(
        None,
        description="what the ratio compares: capacity (the load at which an SLO begins to be "
        "missed), throughput (at the load the spec lists), or the metric that is minimised",
    )
    means: Means | None = Field(
        None, description="infer/s, or the metric's base unit; null: the current one is not known"
    )
    rounds: Rounds | None = Field(None, description="behind the ratio; null: without any")
    at_least: bool = Field(
        False,
        exclude_if=_empty,
        description="only ratio.low is known: the current config is far behind, and sustains at "
        "most a load that is known",
    )


class ToKnow(ResultPart):
    """What it would take to know whether a config is better."""

    rounds: Count = Field(description="more than were made")
    minutes: NotNegative = Field(description="that these would take")
    chance: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="probability that the best other config is better, by the rounds made"
    )


class TrialCounts(ResultPart):
    asked: Count
    measured: Count
    pruned: Count
    failed: Count
    duplicates: Count = Field(description="proposals that had been measured already")


class RejectedFacts(ResultPart):
    """Measurements that count for nothing; rejected.jsonl of the run has each of them."""

    count: Count
    seconds: NotNegative
    share_of_measuring: float = Field(ge=0, le=1, description="of time.measuring_s")
    reasons: tuple[str, ...] = Field(description="each once, one sentence")

    @classmethod
    def of(cls, rejected: Sequence[Rejected], measuring_s: float) -> Self:
        seconds = sum(r.wall_s for r in rejected)
        return cls(
            count=len(rejected),
            seconds=round(seconds, 3),
            share_of_measuring=min(seconds / measuring_s, 1.0) if measuring_s > 0.0 else 0.0,
            reasons=tuple(dict.fromkeys(sentence(r.reason) for r in rejected)),
        )


class TimeFacts(BaseModel):
    """Seconds by phase; all but ``wall_s`` add up to it."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float]

    wall_s: NotNegative
    measuring_s: NotNegative
    deploying_s: NotNegative
    searching_s: NotNegative

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        parts = sum(self.by_phase().values())
        if abs(parts - self.wall_s) > 0.01 * self.wall_s + 0.1:
            raise ValueError(f"the phases add up to {parts:.1f} s, wall_s is {self.wall_s:.1f} s")
        return self

    def by_phase(self) -> dict[str, float]:
        """``measuring_s`` and the rest, without the sum; the longest first."""
        parts = {k: float(v) for k, v in self.model_dump().items() if k != "wall_s"}
        return dict(sorted(parts.items(), key=lambda item: -item[1]))


class WrittenFacts(ResultPart):
    """What was written to the repository."""

    path: str
    sha256_before: Sha256 | None
    sha256_after: Sha256 | None
    backup: str | None
    others: tuple[WrittenFacts, ...] = Field(
        (), exclude_if=_empty, description="the other files of the same write"
    )

    @property
    def files(self) -> tuple[WrittenFacts, ...]:
        return (self, *self.others)

    def to_json(self) -> dict[str, Any]:
        """The value of ``written``."""
        return self.model_dump(mode="json")


class ChangedConfig(ResultPart):
    """A config.pbtxt as the run read it, and with what the winner needs."""

    config_before: str
    config_after: str


@dataclass(frozen=True)
class Change:
    """A winner as text: each config that changes, by label, and the unified diff of them all."""

    configs: Mapping[str, ChangedConfig]
    diff: str


@dataclass(frozen=True)
class Overloads:
    """What each config did at 120 % of its capacity, and afterwards; null: see ``reasons``."""

    current: Overload | None
    winner: Overload | None
    why: Annotated[tuple[Reason, ...], Field(alias="reasons_data")] = ()

    @computed_field(alias="reasons")  # type: ignore[prop-decorator]
    @property
    def reasons(self) -> tuple[str, ...]:
        """One sentence each."""
        return tuple(map(sentence, self.why))


class Edge(ResultPart):
    """A field whose best value is the outermost that the space allows."""

    model: str
    field: str
    value: int
    largest: bool = Field(description="else it is the smallest")
    allowed: str = Field(description="the values of the space, for people")
    wider: str = Field(description="what to write in the spec for the field, to allow one more")


class RunHeading(ResultPart):
    """Which run a result is of."""

    schema_version: Literal[1]
    run_id: str
    model: str


class RunDecision(ResultPart):
    """What a run decided, with its figures and its reasons, before anything is written."""

    status: Status
    why: tuple[Reason, ...] = Field(
        (), description="the reasons as data: a kind, the config or trial it is about, its facts"
    )
    baseline: ProvedConfig | None = Field(description="the config in the repository; null: unknown")
    winner: ProvedConfig | None = Field(description="null unless a config proved better")
    best: ProvedConfig | None = Field(
        None, description="the best other config that took part, where there is no winner"
    )
    gain: Gain | None = Field(
        description="of the winner, or of the best other config; null where none was compared with "
        "the current one, or that met the SLOs at no load",
    )
    to_know: ToKnow | None = Field(None, description="null where the answer is known")
    simplification: tuple[ChangeUndone, ...] | None = Field(
        None, description="each change of the winner that was undone as a test"
    )
    overload: Overloads | None = Field(None, description="null when the run did not get that far")
    warm_up: WarmUp | None = Field(
        None,
        exclude_if=_empty,
        description="what a model_warmup spares users of the winner, or of the current config",
    )
    edges: tuple[Edge, ...] = Field(
        (), exclude_if=_empty, description="fields of the winner to widen the space of"
    )

    @classmethod
    def of(
        cls,
        status: Status,
        why: tuple[Reason, ...],
        baseline: ProvedConfig | None = None,
        winner: ProvedConfig | None = None,
        gain: Gain | None = None,
        **more: Any,
    ) -> RunDecision:
        """A decision in which what is not given is not known, or is none."""
        return RunDecision(
            status=status, why=why, baseline=baseline, winner=winner, gain=gain, **more
        )


class Result(RunDecision, RunHeading):
    """How a tuning run ended. Readers ignore keys they do not know."""

    reasons: tuple[str, ...] = Field((), description="why, one sentence each")
    spec_sha256: str | None = None
    objective: _Objective | None = Field(None, description="as in the spec")
    trials: TrialCounts
    rejected: RejectedFacts
    time: TimeFacts
    written: WrittenFacts | None = Field(description="null when nothing was written")
    server_args: tuple[str, ...] = Field((), description="what the winner needs")
    environment: dict[str, int | None] = Field(
        default_factory=dict,
        exclude_if=_empty,
        description="variables that the winner needs in the server's environment, with their "
        "numbers of threads; null: not set",
    )
    noise: RunNoise | None = Field(None, description="null when nothing was measured twice")
    diff: str | None = Field(None, description="unified diff of config.pbtxt, of all that change")
    models: dict[str, ChangedConfig] = Field(
        default_factory=dict, exclude_if=_empty, description="the configs it changes, by model"
    )

    def to_json(self) -> dict[str, Any]:
        """The content of `result.json`."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def from_json(cls, data: Any) -> Result:
        """Raises:
        ValidationError: It does not follow version 1.
        """
        return cls.model_validate_json(json.dumps(result_of_earlier(data)), strict=True)


def read_result(path: Path) -> Result | None:
    """A `result.json`; None where there is none.

    Raises:
        UnreadableFileError: It is no JSON, or does not follow version 1.
    """
    data = read_json(path, dict)
    try:
        return None if data is None else Result.from_json(data)
    except ValidationError as error:
        lines = "".join(f"\n  {mistake}" for mistake in _mistakes(error))
        raise UnreadableFileError(
            f"{path} does not follow version 1:{lines}",
            "was it edited, or written by another version of tune?",
        ) from error


def check(data: Any) -> list[str]:
    """Mistakes in ``data`` as a `result.json`, one line each; empty when there is none."""
    try:
        Result.from_json(data)
    except ValidationError as error:
        return _mistakes(error)
    return []


def _mistakes(error: ValidationError) -> list[str]:
    return [f"{dotted(e['loc'])}: {reason_of(e)}" for e in error.errors()]


def published(part: type[ResultPart], title: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a file as it is written.

    Sentences beside reasons are not required: earlier files lack some.
    """
    schema = part.model_json_schema(by_alias=True, mode="serialization")
    for kind in schema["$defs"].values():
        made = {n for n, info in kind.get("properties", {}).items() if info.get("readOnly")}
        if required := kind.get("required"):
            kind["required"] = [name for name in required if name not in made]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"{title} of triton-tune, version 1",
    }


def json_schema() -> dict[str, Any]:
    """The published JSON Schema, kept in docs/schemas/result.schema.json."""
    return published(Result, "result.json")
