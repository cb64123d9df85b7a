"""`result.json`, version 1, as models: checked in tests, published as a JSON Schema, read here.

Readers must ignore keys they do not know, so that keys may be added within version 1. A key
never changes its meaning or unit and is never removed within a version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuner.load.measurement import (
    Course,
    HostUse,
    LatencySource,
    LoadPoint,
    Restart,
    ServerStatistics,
    Slice,
)
from tuner.load.probes.overload import Overload
from tuner.run.status import Status
from tuner.score.verdict import Verdict

SCHEMA_VERSION = 1

Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
FieldJson = bool | int | float | str | list[int] | list[str] | None


class Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class MeasurementFacts(Facts):
    """One load point measured once."""

    load: LoadPoint = Field(description="closed: level is concurrency; else requests per second")
    seed: int
    duration_s: NotNegative = Field(description="length of the measured window")
    completed_count: Count = Field(description="requests answered without error in the window")
    failed_count: Count = Field(description="requests answered with an error, or refused")
    unanswered_count: Count = Field(0, description="requests due in the window, never answered")
    batch_size: int = Field(1, ge=1, description="inferences in one request")
    throughput_infer_per_s: NotNegative
    avg_latency_us: NotNegative
    p50_latency_us: NotNegative
    p90_latency_us: NotNegative
    p95_latency_us: NotNegative
    p99_latency_us: NotNegative
    source: LatencySource = Field(description="percentiles over requests, or over windows")
    sent_per_s: float | None = None
    due_per_s: float | None = Field(None, description="requests due, per second (open loop)")
    mean_in_flight: float | None = Field(None, description="requests outstanding, on average")
    late_sends: float | None = Field(None, description="share sent over 1 ms late, 0..1")
    send_lag_p99_us: float | None = Field(None, description="p99 of how late requests were sent")
    within_bounds: bool | None = Field(
        None, description="whether every percentile that an SLO bounds was within its bound"
    )
    client_send_us: float | None = None
    client_recv_us: float | None = None
    network_us: float | None = None
    server: ServerStatistics | None = Field(None, description="Triton's statistics, averages")
    host: HostUse = Field(description="what the machines did meanwhile")
    rejected_count: Count = Field(0, description="of the failed: refused by a queue policy")
    backlog: bool = Field(False, description="the server was still working off requests at the end")
    wall_s: NotNegative = Field(description="seconds the whole measurement took")
    restarts: list[Restart] = Field(default_factory=list, description="of a closed loop")
    slices: list[Slice] = Field(default_factory=list, description="over time, if asked for")
    course: Course | None = Field(None, description="trend and memory of the latency (open loop)")
    disturbances: list[str] = Field(default_factory=list, description="what else went on")
    warnings: list[str] = Field(default_factory=list)
    command: list[str] = Field(default_factory=list, description="the exact command line")


class SloFacts(Facts):
    """One SLO held against one config."""

    expression: str
    value: float | None = Field(description="base unit: us, 0..1, per second, bytes")
    verdict: Verdict
    metric: str | None = None
    bound: float | None = Field(None, description="in the base unit")
    margin: float | None = Field(None, description="share of the bound left; negative: missed")
    reason: str = Field("", description="why a load within its bound was not steady")


class LateFacts(Facts):
    """How many requests of a soak were late, and how many may be in the long run."""

    requests: Count = Field(description="due in the window")
    late: Count = Field(description="of them, those answered too late, refused, or not answered")
    effective: NotNegative = Field(
        description="independent requests that would tell as much: late ones come in rows"
    )
    at_most: float = Field(ge=0, le=1, description="upper 95 % limit of their share")


class SoakedFacts(Facts):
    """One long load on one config; it held where every SLO passes."""

    measurement: MeasurementFacts
    slo: list[SloFacts]
    late: LateFacts | None = Field(
        None, description="null in closed loops, and where single latencies are not known"
    )


class SoakFacts(Facts):
    """The load a config is credited with, put on it for long; lowered until one held."""

    tried: list[SoakedFacts] = Field(description="in order; only the last one may have held")
    reason: str = Field("", description="why none tells whether the claim holds")


class ConfigFacts(Facts):
    """A config, what it needs, and what was measured of it."""

    fields: dict[str, FieldJson] = Field(description="ModelConfig path to value, searched ones")
    server_args: list[str] = Field(description="tritonserver arguments it needs")
    measurements: list[MeasurementFacts] = Field(description="what the numbers below come from")
    goodput_infer_per_s: float | None = Field(
        description="throughput at the highest load that met every SLO, of a winner in every "
        "round, and where a soak held, in that; null when none did"
    )
    worst_round_infer_per_s: float | None = Field(
        None,
        description="the same of the round in which it was lowest, of those that met every SLO: "
        "what reports tell; null when none did",
    )
    rounds_met: Count | None = Field(
        None, description="measurements that met every SLO; null: written before it was kept"
    )
    p50_latency_us: float | None
    p90_latency_us: float | None
    p95_latency_us: float | None
    p99_latency_us: float | None
    slo: list[SloFacts]
    soak: SoakFacts | None = Field(None, description="null: the run did not come to it")


class Interval(Facts):
    estimate: float
    low: float
    high: float


class Means(Facts):
    """Geometric means over the rounds of what was compared; the ratio is of the two."""

    winner: NotNegative = Field(description="before what made no difference was taken out of it")
    current: NotNegative


class Rounds(Facts):
    """In how many rounds each was measured."""

    winner: Count
    current: Count = Field(
        description="fewer where it was so far behind that more would have told nothing: the "
        "interval then rests on how much a round may vary, not on pairs"
    )


class Improvement(Facts):
    goodput_ratio: Interval = Field(
        description="times better than the current config; above 1 is better, also when a latency "
        "or memory is minimised"
    )
    confidence: float = Field(gt=0, lt=1, description="of the interval")
    compared: str | None = Field(
        None,
        description="of what the ratio is: capacity (the load at which an SLO begins to be "
        "missed), throughput (at the load the spec lists), or the metric that is minimised",
    )
    means: Means | None = Field(
        None, description="infer/s, or the metric's base unit; null: written before it was kept"
    )
    rounds: Rounds | None = Field(
        None, description="that the ratio is of; null: written before it was kept, as many of both"
    )


class TrialCounts(Facts):
    asked: Count
    measured: Count
    pruned: Count
    failed: Count
    duplicates: Count = Field(description="proposals that had been measured already")


class RejectedFacts(Facts):
    """Measurements that count for nothing; rejected.jsonl of the run has each of them."""

    count: Count
    seconds: NotNegative
    share_of_measuring: float = Field(ge=0, le=1, description="of time.measuring_s")
    reasons: list[str] = Field(description="each once, one sentence")


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


class WrittenFacts(Facts):
    """What was written to the repository."""

    path: str
    sha256_before: Sha256 | None
    sha256_after: Sha256 | None
    backup: str | None


class Simplification(Facts):
    """One field of the winner put back to the current value, and what that cost.

    ``with`` and ``without`` are what was compared, capacity or the minimised metric, in the rounds
    that both were measured in.
    """

    field: str
    with_: float | None = Field(alias="with")
    without: float | None
    difference: float | None
    loss_allowed: float | None = Field(
        default=None, description="share of the winner that a simpler config might lose"
    )
    kept: bool


class Overloads(Facts):
    """What each config did at 120 % of its capacity, and afterwards."""

    current: Overload | None = Field(description="null: not measured; see reasons")
    winner: Overload | None = Field(description="null: no winner, or not measured; see reasons")
    reasons: list[str] = Field(default_factory=list, description="why one was not measured")


class NoiseFacts(Facts):
    """Spread of what the confirmation measured more than once, on another server each time."""

    repeats: Count = Field(description="measurements of a config at a load it had more than once")
    throughput_cv: float | None = Field(description="coefficient of variation, of these")
    p99_cv: float | None = Field(description="coefficient of variation, of these")
    rounds: Count = Field(description="rounds whose capacity is known, of configs with several")
    capacity_cv: float | None = Field(description="coefficient of variation, of these")


class Result(Facts):
    """How a tuning run ended. Readers ignore keys they do not know."""

    schema_version: Literal[1]
    run_id: str
    model: str
    status: Status
    reasons: list[str] = Field(default_factory=list, description="why, one sentence each")
    spec_sha256: str | None = None
    objective: str | None = Field(None, description="as in the spec")
    baseline: ConfigFacts | None = Field(description="the config in the repository; null: unknown")
    winner: ConfigFacts | None = Field(description="null unless a config proved better")
    improvement: Improvement | None = Field(
        description="null without a winner, or when the current config met the SLOs at no load"
    )
    trials: TrialCounts
    rejected: RejectedFacts | None = Field(None, description="null: written before it was kept")
    time: TimeFacts
    written: WrittenFacts | None = Field(description="null when nothing was written")
    server_args: list[str] = Field(default_factory=list, description="what the winner needs")
    simplification: list[Simplification] | None = None
    noise: NoiseFacts | None = Field(None, description="null when nothing was measured twice")
    overload: Overloads | None = Field(None, description="null when the run did not come to it")
    diff: str | None = Field(None, description="unified diff of config.pbtxt")
    config_before: str | None = None
    config_after: str | None = None


def check(data: Any) -> list[str]:
    """Mistakes in ``data`` as a `result.json`, one line each; empty when there is none."""
    try:
        result = Result.model_validate(data)
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    parts = sum(result.time.by_phase().values())
    if abs(parts - result.time.wall_s) > 0.01 * result.time.wall_s + 0.1:
        return [f"time: the phases add up to {parts:.1f} s, wall_s is {result.time.wall_s:.1f} s"]
    return []


def json_schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12), kept in docs/result.schema.json."""
    schema = Result.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "result.json of triton-tune, version 1",
    }
