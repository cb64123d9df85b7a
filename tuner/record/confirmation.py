"""What the proof of a run stores: its measurements and its conclusions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import Field, computed_field

from tuner.facts import Facts, is_empty
from tuner.measurement.measurement import Measurement
from tuner.reason import Fact, Reason, ReasonKind
from tuner.score.judge import SURE, SloOutcome, SloResult, Verdict, too_few_text
from tuner.score.late_share import LateShare
from tuner.score.point import Point
from tuner.sentences import sentence
from tuner.spec.units import digits


class Role(Enum):
    CURRENT = "current"
    CANDIDATE = "candidate"
    SIMPLER = "simpler"  # the winner with one change undone
    SOAK = "soak"  # a long load on the winner, or on the current config


@dataclass(frozen=True)
class Repeat(Facts):
    """One measurement of a config in a proof."""

    unknown = "ignore"

    round: int
    order: int
    role: Role
    candidate_key: str
    point: Point

    @property
    def alone(self) -> bool:
        """Whether it stands alone, outside of any round."""
        return self.role is Role.SOAK

    @property
    def is_look(self) -> bool:
        """Whether it measured a saturated config only, without a verdict on any SLO."""
        return not self.point.slo


@dataclass(frozen=True)
class ChangeUndone(Facts):
    """A change of the winner that was undone as a test.

    Attributes:
        field: ModelConfig path, or server argument; for a cache, the size tried instead.
        with_change: Geometric mean of the winner's capacity or minimized metric, in its unit, over
            the rounds that measured both configs.
        without_change: The same for the config without the change; None if it could not be served.
        difference: Relative difference of the two.
        loss_allowed: Share of the winner's value that the simpler config may lose.
        kept: The change makes a difference, and stays.
    """

    field: str
    with_change: Annotated[float, Field(alias="with")]
    without_change: Annotated[float | None, Field(alias="without")]
    difference: float | None
    kept: bool
    loss_allowed: float | None = None


@dataclass(frozen=True)
class Soaked(Facts):
    """One long load on a config.

    Attributes:
        slo: The result for each SLO.
        late: Share of late requests; None in closed loops, without an SLO on the tail of the
            latency, and if the latency of each request is unknown.
        excuse: What disturbed the machine, where that may be why an SLO was missed; else None.
    """

    measurement: Measurement
    slo: tuple[SloResult, ...]
    late: LateShare | None = None
    excuse: Annotated[Reason | None, Field(alias="excuse_data")] = None

    @computed_field(alias="excuse")  # type: ignore[prop-decorator]
    @property
    def excuse_text(self) -> str:
        """What disturbed the machine, in words; empty where the result counts as measured."""
        return "" if self.excuse is None else sentence(self.excuse).rstrip(".")

    @property
    def point(self) -> Point:
        return Point(self.measurement, self.slo)

    @property
    def level(self) -> float:
        return self.measurement.load.level

    @property
    def throughput_infer_per_s(self) -> float:
        return self.measurement.sustained_infer_per_s

    @property
    def sustained(self) -> bool:
        return self.point.passed

    @property
    def trends(self) -> tuple[Reason, ...]:
        """Latency or memory that grew by more than chance explains, and by enough to matter."""
        return tuple(_trends(self.measurement))

    @property
    def reason(self) -> Reason:
        """The load and its result: `2430/s for 30 s: 0.6% late (at most 0.9%), p99 31 ms`."""
        measurement = self.measurement
        facts: dict[str, Fact] = {
            "load": str(measurement.load),
            "duration_s": measurement.duration_s,
            "shown": self.summary,
        }
        return Reason(ReasonKind.SOAKED, facts=facts)

    @property
    def sentence(self) -> str:
        """The reason, in words."""
        return sentence(self.reason)

    @property
    def summary(self) -> str:
        """The result without the load: `0.6% late (at most 0.9%), p99 31 ms`."""
        parts = [] if self.late is None else [self.late.text]
        stream = self.point.limiting_stream
        p99_ms = digits(self.point.limiting.p99_latency_us / 1e3)
        parts.append(f"p99{f' of {stream}' if stream else ''} {p99_ms} ms")
        missed = [_missed(s) for s in self.slo if s.verdict.outcome is SloOutcome.MISSED]
        if self.point.outcome is SloOutcome.TOO_FEW:
            missed = [f"{too_few_text(self.slo)} for a verdict"]
        excused = [f"not judged: {self.excuse_text}"] if self.excuse else []
        return "; ".join([", ".join(parts), *missed, *excused])


@dataclass(frozen=True)
class Soak(Facts):
    """The soaks of one config, in their order; a sustained one is the last.

    Attributes:
        why_unknown: Why no soak shows whether the claim holds; None if one does.
        behind: A reason for each load that the load generator could not keep up with.
        headroom: Share of the sustained load that the credit leaves out; without a sustained one,
            of the missed load that an upper bound of the credit leaves out.
    """

    tried: tuple[Soaked, ...] = ()
    why_unknown: Annotated[Reason | None, Field(alias="reason_data")] = None
    behind: Annotated[tuple[Reason, ...], Field(alias="limited_data")] = ()
    headroom: Annotated[float, Field(ge=0, lt=1, exclude_if=is_empty)] = 0.0

    @computed_field(alias="reason")  # type: ignore[prop-decorator]
    @property
    def reason(self) -> str:
        """Why the soaks show nothing, in words; empty if one shows whether the claim holds."""
        return "" if self.why_unknown is None else sentence(self.why_unknown)

    @computed_field(alias="limited")  # type: ignore[prop-decorator]
    @property
    def limited(self) -> tuple[str, ...]:
        """One sentence for each load that the load generator could not keep up with."""
        return tuple(map(sentence, self.behind))

    @property
    def sustained(self) -> Soaked | None:
        """The soak whose load the config sustained; None if there is none."""
        return self.tried[-1] if self.tried and self.tried[-1].sustained else None

    @property
    def lost(self) -> bool:
        """Whether the soaks prove that the config sustains none of the loads.

        Too few answers for a verdict prove nothing: see ``why_unknown``.
        """
        return self.sustained is None and self.why_unknown is None

    @property
    def credited_per_s(self) -> float | None:
        """Inferences per second credited to the config; None if it sustained no load."""
        sustained = self.sustained
        return (
            None if sustained is None else (1.0 - self.headroom) * sustained.throughput_infer_per_s
        )

    @property
    def credited_level(self) -> float | None:
        """The credited load: requests per second, or clients; None if it sustained no load."""
        return None if self.sustained is None else (1.0 - self.headroom) * self.sustained.level

    @property
    def failures(self) -> tuple[Reason, ...]:
        """A reason for each load that the config did not sustain, or that was not sent."""
        return (*(s.reason for s in self.tried if not s.sustained), *self.behind)

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence per soak, the sustained one last."""
        lost, sustained = [s.sentence for s in self.tried], list[str]()
        if self.sustained is not None:
            sustained.append(lost.pop())
            if self.headroom and self.credited_per_s is not None:
                sustained[0] += f"; credited with {digits(self.credited_per_s, 4)}/s"
        return (*lost, *self.limited, *sustained, *([self.reason] if self.reason else []))


def unknown_by(tried: Sequence[Soaked], behind: Sequence[Reason]) -> Reason | None:
    """Why no load that was tried shows whether the claim holds; None if one does."""
    if not tried:
        return None
    last = tried[-1]
    if last.point.outcome is SloOutcome.TOO_FEW:
        return Reason(ReasonKind.TOO_FEW, facts={"lacking": too_few_text(last.slo)})
    if last.excuse and not behind:
        return Reason(ReasonKind.DISTURBED_MISS, causes=(last.excuse,))
    return None


@dataclass(frozen=True)
class RunNoise(Facts):
    """How the repeated measurements of a proof scatter, as coefficients of variation.

    Attributes:
        repeats: Measurements of a config at a load at which it was measured more than once; each
            on another server, with other arrivals.
        rounds: Rounds with a known capacity, over configs that have several.
    """

    repeats: int
    throughput_cv: float | None
    p99_cv: float | None
    rounds: int
    capacity_cv: float | None


#: Growth in a soak worth a report: of the mean latency; of memory, in bytes and as a share.
_LATENCY_GROWTH, _MEMORY_GROWTH_BYTES, _MEMORY_GROWTH = 0.1, 1 << 20, 0.002


def _trends(measurement: Measurement) -> Iterator[Reason]:
    """Growth of latency and memory that chance does not explain.

    A server also takes memory while it warms up. Such growth does not count unless it goes on in
    the second half of the soak, at half of the mean pace or more.
    """
    course, host = measurement.course, measurement.host
    if course is not None and course.growth > max(_LATENCY_GROWTH, SURE * course.growth_error):
        facts: dict[str, Fact] = {
            "growth_percent": 100.0 * course.growth,
            "error_percent": 100.0 * course.growth_error,
            "duration_s": measurement.duration_s,
        }
        yield Reason(ReasonKind.LATENCY_GROWS, facts=facts)
    for whose, trend in (("the server", host.memory), ("the GPUs", host.gpu_memory)):
        if trend is None:
            continue
        least = max(_MEMORY_GROWTH_BYTES, _MEMORY_GROWTH * trend.used_bytes)
        grows = trend.growth_bytes > max(least, SURE * trend.growth_error_bytes)
        pace = max(trend.growth_bytes / 4.0, trend.late_growth_error_bytes)
        if grows and trend.late_growth_bytes > pace:
            facts = {
                "whose": whose,
                "growth_bytes": trend.growth_bytes,
                "error_bytes": trend.growth_error_bytes,
                "used_bytes": trend.used_bytes,
                "duration_s": measurement.duration_s,
            }
            yield Reason(ReasonKind.MEMORY_GROWS, facts=facts)


def _missed(result: SloResult) -> str:
    if result.verdict is Verdict.FAIL:
        return f"misses {result.expression}"
    return f"{result.expression}: {result.verdict.value}"
