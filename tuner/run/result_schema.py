"""`result.json`, version 1, as models: checked in tests, published as a JSON Schema, read here.

Readers must ignore keys they do not know, so that keys may be added within version 1. A key
never changes its meaning or unit and is never removed within a version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tuner.load.probes.overload import Overload
from tuner.measurement.measurement import Measurement
from tuner.run.bottleneck import Bottleneck
from tuner.run.confirmation import PutBack, RunNoise, Soak
from tuner.run.reading import UnreadableFileError
from tuner.run.status import Status
from tuner.score.judge import SloResult
from tuner.score.ratio import Ratio
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.slo import Objective

SCHEMA_VERSION = 1


def _empty(value: object) -> bool:
    """For a key that is there only when a run has several models or several streams."""
    return not value


Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
_Objective = Annotated[str, AfterValidator(lambda text: Objective.parse(text) and text)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Part(BaseModel):
    """Part of a result."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class StreamFacts(Part):
    """What a stream of requests got: the worst of the measurements."""

    throughput_infer_per_s: NotNegative
    p50_latency_us: float
    p99_latency_us: float
    slo_utilisation: float | None = Field(description="above 1 an SLO of the stream is missed")


class ConfigFacts(Part):
    """A config, what it needs, and what was measured of it."""

    models: dict[str, dict[str, FieldValue]] = Field(
        description="by model: searched ModelConfig paths and their values"
    )
    server_args: tuple[str, ...] = Field(description="tritonserver arguments it needs")
    measurements: tuple[Measurement, ...] = Field(description="what the numbers below come from")
    verdicts: tuple[tuple[SloResult, ...], ...] = Field(
        (),
        description="each SLO held against each of the measurements, in order; empty: written "
        "before it was kept",
    )
    goodput_infer_per_s: float | None = Field(
        description="throughput at the highest load that met every SLO: of a winner, in every "
        "round, and in the soak where it held; null when no load did"
    )
    at_least: bool = Field(
        False,
        exclude_if=_empty,
        description="it sustained all that the load generator could send, and may sustain more",
    )
    worst_round_infer_per_s: float | None = Field(
        None,
        description="the same in the lowest of the rounds that met every SLO, which is what "
        "reports "
        "show; null when none did",
    )
    rounds_met: Count | None = Field(
        None, description="measurements that met every SLO; null: written before it was kept"
    )
    p50_latency_us: float | None
    p90_latency_us: float | None
    p95_latency_us: float | None
    p99_latency_us: float | None
    slo: tuple[SloResult, ...]
    soak: Soak | None = Field(None, description="null: the run did not get that far")
    streams: dict[str, StreamFacts] = Field(
        default_factory=dict, exclude_if=_empty, description="by name, where there are several"
    )
    bottleneck: Bottleneck | None = Field(
        None, exclude_if=_empty, description="where a request spends its time, with several models"
    )

    @property
    def candidate(self) -> Candidate:
        return Candidate.from_json({"models": self.models, "server_args": self.server_args})


class Means(Part):
    """Geometric means over the rounds of what was compared; the ratio is of the two."""

    winner: NotNegative = Field(description="before changes that made no difference were removed")
    current: NotNegative


class Rounds(Part):
    """In how many rounds each was measured."""

    winner: Count
    current: Count = Field(
        description="fewer where it was so far behind that more would have shown nothing: the "
        "interval then rests on how much a round may vary, not on pairs"
    )


class Improvement(Part):
    goodput_ratio: Ratio = Field(
        description="times better than the current config; above 1 is better, also when a latency "
        "or memory is minimised"
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
    rounds: Rounds | None = Field(
        None,
        description="behind the ratio; null: written before it was kept, as many of both",
    )
    at_least: bool = Field(
        False,
        exclude_if=_empty,
        description="only goodput_ratio.low is known: the current config is far behind, so that "
        "it was measured in one rough round, or (where there are means) only at means.current, a "
        "load that it did not sustain",
    )


class TrialCounts(Part):
    asked: Count
    measured: Count
    pruned: Count
    failed: Count
    duplicates: Count = Field(description="proposals that had been measured already")


class RejectedFacts(Part):
    """Measurements that count for nothing; rejected.jsonl of the run has each of them."""

    count: Count
    seconds: NotNegative
    share_of_measuring: float = Field(ge=0, le=1, description="of time.measuring_s")
    reasons: tuple[str, ...] = Field(description="each once, one sentence")


class TimeFacts(BaseModel):
    """Seconds by phase; all but ``wall_s`` add up to it."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float]

    wall_s: NotNegative
    measuring_s: NotNegative
    deploying_s: NotNegative
    searching_s: NotNegative

    def by_phase(self) -> dict[str, float]:
        """``measuring_s`` and the rest, without the sum; the longest first."""
        parts = {k: float(v) for k, v in self.model_dump().items() if k != "wall_s"}
        return dict(sorted(parts.items(), key=lambda item: -item[1]))


class WrittenFacts(Part):
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


class ChangedConfig(Part):
    """A config.pbtxt as the run read it, and with what the winner needs."""

    config_before: str
    config_after: str


@dataclass(frozen=True)
class Overloads:
    """What each config did at 120 % of its capacity, and afterwards; null: see ``reasons``."""

    current: Overload | None
    winner: Overload | None
    reasons: tuple[str, ...] = ()


class Result(Part):
    """How a tuning run ended. Readers ignore keys they do not know."""

    schema_version: Literal[1]
    run_id: str
    model: str
    status: Status
    reasons: tuple[str, ...] = Field((), description="why, one sentence each")
    spec_sha256: str | None = None
    objective: _Objective | None = Field(None, description="as in the spec")
    baseline: ConfigFacts | None = Field(description="the config in the repository; null: unknown")
    winner: ConfigFacts | None = Field(description="null unless a config proved better")
    improvement: Improvement | None = Field(
        description="null without a winner, or when the current config met the SLOs at no load"
    )
    trials: TrialCounts
    rejected: RejectedFacts | None = Field(None, description="null: written before it was kept")
    time: TimeFacts
    written: WrittenFacts | None = Field(description="null when nothing was written")
    server_args: tuple[str, ...] = Field((), description="what the winner needs")
    simplification: tuple[PutBack, ...] | None = None
    noise: RunNoise | None = Field(None, description="null when nothing was measured twice")
    overload: Overloads | None = Field(None, description="null when the run did not get that far")
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
        return cls.model_validate_json(json.dumps(data), strict=True)


def not_version_1(path: Path, mistakes: Iterable[str]) -> UnreadableFileError:
    """What to tell of a `result.json` in which `check` finds these mistakes."""
    lines = "".join(f"\n  {mistake}" for mistake in mistakes)
    return UnreadableFileError(
        f"{path} does not follow version 1:{lines}",
        "was it edited, or written by another version of tune?",
    )


def check(data: Any) -> list[str]:
    """Mistakes in ``data`` as a `result.json`, one line each; empty when there is none."""
    try:
        result = Result.from_json(data)
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    parts = sum(result.time.by_phase().values())
    if abs(parts - result.time.wall_s) > 0.01 * result.time.wall_s + 0.1:
        return [f"time: the phases add up to {parts:.1f} s, wall_s is {result.time.wall_s:.1f} s"]
    return []


def json_schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12), kept in docs/schemas/result.schema.json."""
    schema = Result.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "result.json of triton-tune, version 1",
    }
