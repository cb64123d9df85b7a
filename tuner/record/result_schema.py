"""`result.json`, version 1, as models: they check, publish and read the file.

Readers must ignore unknown keys, so that version 1 may gain keys. Within a version, a key never
changes its meaning or unit and is never removed.
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

from tuner.facts import is_empty
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


Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
_Objective = Annotated[str, AfterValidator(lambda text: Objective.parse(text) and text)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ResultPart(BaseModel):
    """Part of a result."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Means(ResultPart):
    """Geometric means of the compared quantity over the rounds; their ratio is the gain."""

    best: NotNegative = Field(description="before removal of changes that make no difference")
    current: NotNegative


class Rounds(ResultPart):
    """The number of rounds in which each config was measured."""

    best: Count
    current: Count = Field(
        description="fewer if it was so far behind that more rounds would have shown nothing"
    )


class Gain(ResultPart):
    """How much better the winner, or else the best other config, is than the current one."""

    ratio: Ratio = Field(
        description="times better than the current config; above 1 is better, also for a minimized "
        "latency or memory; high is the largest gain that is still possible"
    )
    confidence: float = Field(gt=0, lt=1, description="of the interval")
    compared: str | None = Field(
        None,
        description="the compared quantity: capacity (the load above which an SLO is missed), "
        "throughput (at the load in the spec), or the minimized metric",
    )
    means: Means | None = Field(
        None, description="infer/s, or the metric's base unit; null: the current one is unknown"
    )
    rounds: Rounds | None = Field(None, description="rounds that the ratio rests on; null: none")
    at_least: bool = Field(
        False,
        exclude_if=is_empty,
        description="only ratio.low is known: the current config is far behind, and only an upper "
        "bound of its load is known",
    )


class ToKnow(ResultPart):
    """What it takes to find out whether a config is better."""

    rounds: Count = Field(description="rounds in addition to those of the run")
    minutes: NotNegative = Field(description="duration of these rounds")
    chance: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="probability that the best other config is better, by the rounds so far"
    )


class TrialCounts(ResultPart):
    asked: Count
    measured: Count
    pruned: Count
    failed: Count
    duplicates: Count = Field(description="proposals that had already been measured")


class RejectedFacts(ResultPart):
    """Measurements that do not count; the run's rejected.jsonl has each of them."""

    count: Count
    seconds: NotNegative
    share_of_measuring: float = Field(ge=0, le=1, description="of time.measuring_s")
    reasons: tuple[str, ...] = Field(description="one sentence each, without repetition")

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
    """Seconds by phase; the phases add up to ``wall_s``."""

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
        """``measuring_s`` and the other phases, without the sum; the longest first."""
        parts = {k: float(v) for k, v in self.model_dump().items() if k != "wall_s"}
        return dict(sorted(parts.items(), key=lambda item: -item[1]))


class WrittenFacts(ResultPart):
    """Files that the run wrote into the repository."""

    path: str
    sha256_before: Sha256 | None
    sha256_after: Sha256 | None
    backup: str | None
    others: tuple[WrittenFacts, ...] = Field(
        (), exclude_if=is_empty, description="the other files of the same write"
    )

    @property
    def files(self) -> tuple[WrittenFacts, ...]:
        return (self, *self.others)

    def to_json(self) -> dict[str, Any]:
        """The value of ``written``."""
        return self.model_dump(mode="json")


class ChangedConfig(ResultPart):
    """A config.pbtxt as the run read it, and with the winner's changes."""

    config_before: str
    config_after: str


@dataclass(frozen=True)
class Change:
    """A winner as text: each config that changes, by label, and one unified diff for all."""

    configs: Mapping[str, ChangedConfig]
    diff: str


@dataclass(frozen=True)
class Overloads:
    """How each config behaved at 120% of its capacity, and afterwards; null: see ``reasons``."""

    current: Overload | None
    winner: Overload | None
    why: Annotated[tuple[Reason, ...], Field(alias="reasons_data")] = ()

    @computed_field(alias="reasons")  # type: ignore[prop-decorator]
    @property
    def reasons(self) -> tuple[str, ...]:
        """One sentence each."""
        return tuple(map(sentence, self.why))


class Edge(ResultPart):
    """A field whose best value is the largest or the smallest that the space allows."""

    model: str
    field: str
    value: int
    largest: bool = Field(description="true: the largest value; false: the smallest")
    allowed: str = Field(description="the values of the space, for people")
    wider: str = Field(description="the field's entry in the spec that allows one more value")


class RunHeading(ResultPart):
    """The run that a result belongs to."""

    schema_version: Literal[1]
    run_id: str
    model: str


class RunDecision(ResultPart):
    """What a run decided, with figures and reasons, before anything is written."""

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
        description="of the winner, or of the best other config; null if none was compared with "
        "the current one, or if none met the SLOs at any load",
    )
    to_know: ToKnow | None = Field(None, description="null where the answer is known")
    simplification: tuple[ChangeUndone, ...] | None = Field(
        None, description="each change of the winner that was undone as a test"
    )
    overload: Overloads | None = Field(None, description="null when the run did not get that far")
    warm_up: WarmUp | None = Field(
        None,
        exclude_if=is_empty,
        description="time that a model_warmup saves users of the winner, or of the current config",
    )
    edges: tuple[Edge, ...] = Field(
        (), exclude_if=is_empty, description="fields of the winner whose space should be wider"
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
        """A decision; a part that is not given is unknown or absent."""
        return RunDecision(
            status=status, why=why, baseline=baseline, winner=winner, gain=gain, **more
        )


class Result(RunDecision, RunHeading):
    """How a tuning run ended. Readers ignore unknown keys."""

    reasons: tuple[str, ...] = Field((), description="why the run ended so, one sentence each")
    spec_sha256: str | None = None
    objective: _Objective | None = Field(None, description="as in the spec")
    trials: TrialCounts
    rejected: RejectedFacts
    time: TimeFacts
    written: WrittenFacts | None = Field(description="null when nothing was written")
    server_args: tuple[str, ...] = Field((), description="server arguments of the winner")
    environment: dict[str, int | None] = Field(
        default_factory=dict,
        exclude_if=is_empty,
        description="variables that the winner needs in the server's environment, with their "
        "numbers of threads; null: not set",
    )
    noise: RunNoise | None = Field(None, description="null when nothing was measured twice")
    diff: str | None = Field(None, description="unified diff of all config.pbtxt that change")
    models: dict[str, ChangedConfig] = Field(
        default_factory=dict, exclude_if=is_empty, description="the configs it changes, by model"
    )

    def to_json(self) -> dict[str, Any]:
        """The content of `result.json`."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def from_json(cls, data: Any) -> Result:
        """Reads a result.

        Raises:
            ValidationError: It does not follow version 1.
        """
        return cls.model_validate_json(json.dumps(result_of_earlier(data)), strict=True)


def read_result(path: Path) -> Result | None:
    """A `result.json`; None if there is no file.

    Raises:
        UnreadableFileError: It is not JSON, or does not follow version 1.
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
    """Mistakes in ``data`` as a `result.json`, one line each; empty without mistakes."""
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
