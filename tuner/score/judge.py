"""Does a measurement meet the SLOs? Pass, fail, or why that cannot be said; never a silent pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, assert_never

from pydantic import AfterValidator, Field

from tuner.facts import Facts
from tuner.measurement.measurement import Arrivals, Figures, Measurement
from tuner.measurement.window import CONFIDENCE
from tuner.spec.metrics import Better, Metric, parse_metric, requests_needed
from tuner.spec.slo import Slo, hardest
from tuner.spec.units import digits

#: SLO utilisation up to which noise alone may miss an SLO, where the noise was not measured: two
#: standard deviations of a p99 near its bound, which repeats within about 5 %.
NEAR_MISS = 1.10


class SloOutcome(Enum):
    """What measurements say of SLOs. The third value is no miss: nothing follows from it."""

    MET = "met"
    MISSED = "missed"
    TOO_FEW = "too few answers"

    @property
    def met(self) -> bool | None:
        """None where nothing follows."""
        return None if self is SloOutcome.TOO_FEW else self is SloOutcome.MET


class Verdict(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOT_STEADY = "not steady"  # within its bound, in a state that does not last
    NOT_ENOUGH_DATA = "not enough data"

    @property
    def outcome(self) -> SloOutcome:
        match self:
            case Verdict.PASS:
                return SloOutcome.MET
            case Verdict.FAIL | Verdict.NOT_STEADY:
                return SloOutcome.MISSED
            case Verdict.NOT_ENOUGH_DATA:
                return SloOutcome.TOO_FEW
            case _:
                assert_never(self)


#: Worst first.
_ORDER = (Verdict.FAIL, Verdict.NOT_STEADY, Verdict.NOT_ENOUGH_DATA, Verdict.PASS)


@dataclass(frozen=True)
class SloResult(Facts):
    """One SLO held against one measurement.

    Attributes:
        bound: In the metric's base unit, as ``value`` is: microseconds, 0..1, per second, bytes.
        value: None when it was not measured.
        margin: Distance to the bound as a share of it, negative when missed.
        reason: Why a load was not steady.
        stream: Whose requests it is about.
        answered: Where there were too few answers for a verdict: how many.
        needed: And how many answers a verdict takes.
    """

    expression: str
    metric: Annotated[str, AfterValidator(lambda name: parse_metric(name).name)]
    bound: float
    value: float | None
    verdict: Verdict
    margin: float | None
    reason: str = ""
    stream: Annotated[str, Field(exclude_if=lambda name: not name)] = ""
    answered: Annotated[int | None, Field(exclude_if=lambda count: count is None)] = None
    needed: Annotated[int | None, Field(exclude_if=lambda count: count is None)] = None


def rank(verdict: Verdict) -> int:
    return _ORDER.index(verdict)


def severity(result: SloResult) -> tuple[int, float]:
    """For sorting: the worst verdict first, of equal ones that with the least margin."""
    return rank(result.verdict), 0.0 if result.margin is None else result.margin


#: Of the requests due in a window, this share may be answered after it.
BEHIND = 0.01
#: So many square roots of the number due are allowed on top: how many are under way at the start
#: and end of a window varies by chance. Two standard deviations of queues at 0.95 of their
#: saturation; where few are due, batches vary more (tests/unit/score/test_steadiness.py).
BY_CHANCE = 0.6
#: Growth of the latency that is a trend: as a share of its mean, in standard errors, and as a share
#: of its bound, which a hundredth of the load too much adds in the shortest window.
GROWTH, SURE, OF_BOUND = 0.5, 3.0, 0.1


def unsteadiness(measurement: Figures, bound_us: float) -> str:
    """Why the state it was measured in does not last, in words; empty when nothing shows that.

    Either fewer requests were answered than were due, or latency rises on a line through the
    window, by more than chance would explain. A closed loop is always steady, and of a recording
    only the first is told.
    """
    if not measurement.load.arrivals.open_loop:
        return ""
    behind, course = behind_share(measurement), measurement.course
    if behind is not None:
        return f"answered {digits(100 * (1 - behind), 3)}% of what was due"
    uneven = measurement.load.arrivals is Arrivals.RECORDING  # and latency with what comes
    if (
        uneven
        or course is None
        or course.growth * measurement.avg_latency_us <= OF_BOUND * bound_us
    ):
        return ""
    if course.growth > max(GROWTH, SURE * course.growth_error):
        return f"latency grows by {digits(100 * course.growth, 2)}% of its mean within the window"
    return ""


def behind_share(measurement: Figures) -> float | None:
    """The part of the requests due that was not answered; None where chance explains it."""
    rate = measurement.due_per_s
    if not rate:
        return None
    due = rate * measurement.duration_s
    behind = due - (measurement.completed_count + measurement.failed_count)
    # Two standard deviations of the difference of two Poisson numbers with the mean in flight.
    at_ends = 2.0 * math.sqrt(2.0 * (measurement.mean_in_flight or 0.0))
    allowed = BEHIND * due + max(BY_CHANCE * math.sqrt(due), at_ends)
    return behind / due if behind > allowed else None


#: Quantiles from here on bound the tail, and so say which answers were in time.
TAIL = 0.9


def value_of(metric: Metric, measurement: Figures | None, lost: int = 0) -> float | None:
    """The metric in its base unit, or None when this measurement does not have it.

    ``lost``: requests that a percentile ranks above all latencies, where each latency is known.
    """
    if measurement is None:
        return None
    value, latencies = _at(metric.reading, measurement), _at(metric.ranked, measurement)
    quantile = metric.quantile
    if quantile is not None and latencies is not None and (lost or value is None):
        rank = math.ceil(quantile * (latencies.size + lost))
        value = latencies[rank - 1] if rank <= latencies.size else value
    return None if value is None or math.isnan(value) else float(value)


def _at(path: str, value: Any) -> Any:
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def judge(slo: Slo, measurement: Figures, *, lasting: bool = True) -> SloResult:
    """One SLO against one measurement, of a mix against that of its stream.

    ``lasting``: a load that the server cannot follow does not pass either.
    """
    stream = measurement.of(slo.stream)
    value = None if stream is None else value_of(slo.metric, stream, stream.failed_count)
    verdict = Verdict.NOT_ENOUGH_DATA if stream is None else _verdict(slo, value, stream)
    reason = ""
    bound_us = slo.bound if slo.metric.is_latency else math.inf
    if lasting and verdict is Verdict.PASS and stream is not None:
        reason = unsteadiness(stream, bound_us)
    if reason:
        verdict = Verdict.NOT_STEADY
    quantile, short = slo.metric.quantile, verdict is Verdict.NOT_ENOUGH_DATA
    needed = _needed(quantile) if short and quantile is not None else None
    answered = 0 if stream is None else stream.completed_count
    return SloResult(
        expression=str(slo),
        metric=slo.metric.name,
        bound=slo.bound,
        value=value,
        verdict=verdict,
        margin=margin(slo, value),
        reason=reason,
        stream=slo.stream,
        answered=None if needed is None else answered,
        needed=needed,
    )


def judge_all(slos: Sequence[Slo], measurement: Measurement) -> tuple[SloResult, ...]:
    """Judges every SLO; a load that does not last is told by its latencies if one is bounded."""
    timed = {slo.stream for slo in slos if slo.metric.is_latency}
    lasting = [slo.metric.is_latency or slo.stream not in timed for slo in slos]
    return tuple(judge(s, measurement, lasting=la) for s, la in zip(slos, lasting, strict=True))


def outcome_of(results: Sequence[SloResult]) -> SloOutcome:
    """What all SLOs together say: one that is missed decides, then one without a verdict."""
    outcomes = {r.verdict.outcome for r in results} or {SloOutcome.TOO_FEW}
    return next(o for o in (SloOutcome.MISSED, SloOutcome.TOO_FEW, SloOutcome.MET) if o in outcomes)


def outcome_of_rounds(outcomes: Sequence[SloOutcome]) -> SloOutcome:
    """What at least half of the measurements of one config say; else too few answers."""
    for one in (SloOutcome.MET, SloOutcome.MISSED):
        if outcomes and 2 * outcomes.count(one) >= len(outcomes):
            return one
    return SloOutcome.TOO_FEW


def too_few_text(results: Sequence[SloResult]) -> str:
    """`too few answers (290 of 299)`, of the SLO that lacks most; of a metric `not measured`."""
    short = [r for r in results if r.verdict.outcome is SloOutcome.TOO_FEW]
    counted = [(r.answered or 0, r.needed) for r in short if r.needed]
    if not counted:
        unmeasured = dict.fromkeys(r.metric for r in short if r.value is None)
        return (
            f"{' and '.join(unmeasured)} not measured" if unmeasured else SloOutcome.TOO_FEW.value
        )
    answered, needed = min(counted, key=lambda pair: pair[0] / pair[1])
    return f"{SloOutcome.TOO_FEW.value} ({answered:,} of {needed:,})"


def slo_utilisation(results: Sequence[SloResult]) -> float | None:
    """The largest share of a bound (not zero) that was used up; None without readings."""
    shares = [1.0 - r.margin for r in results if r.margin is not None and r.bound != 0]
    return max(shares, default=None)


def violation(results: Sequence[SloResult]) -> float:
    """How far the SLOs are missed: the sum of overshoots as shares of their bounds.

    An SLO that cannot be judged counts as missed by its whole bound, so that no search learns to
    like it.
    """
    total = 0.0
    for result in results:
        if result.verdict in (Verdict.NOT_ENOUGH_DATA, Verdict.NOT_STEADY):
            total += 1.0
        elif result.verdict is Verdict.FAIL:
            total += max(-(result.margin or 0.0), 1e-6)
    return total


def tail_slo(slos: Iterable[Slo]) -> Slo | None:
    """The SLO on the highest percentile of the latency, if any bounds its tail."""
    return hardest(s for s in slos if (s.metric.quantile or 0.0) >= TAIL)


def tails(slos: Sequence[Slo]) -> list[Slo]:
    """`tail_slo` of each stream that has one."""
    streams = dict.fromkeys(slo.stream for slo in slos)
    slos_ = (tail_slo(slo for slo in slos if slo.stream == stream) for stream in streams)
    return [slo for slo in slos_ if slo is not None]


def tightest_latency(slos: Iterable[Slo]) -> Slo | None:
    """The lowest bound on the time until all of an answer is there."""
    bounds = [s for s in slos if s.metric.of_full_response]
    return min(bounds, key=lambda s: s.bound, default=None)


def _verdict(slo: Slo, value: float | None, measurement: Figures) -> Verdict:
    if value is None:
        return Verdict.NOT_ENOUGH_DATA
    quantile = slo.metric.quantile
    # A refused or failed request has no latency; it was not answered in time all the same.
    too_many_lost = quantile is not None and (measurement.error_rate or 0.0) > 1.0 - quantile
    if too_many_lost or not slo.met_by(value):
        return Verdict.FAIL
    if quantile is not None and measurement.completed_count < _needed(quantile):
        return Verdict.NOT_ENOUGH_DATA
    return Verdict.PASS


def _needed(quantile: float) -> int:
    """Answers that a verdict on a percentile takes."""
    return requests_needed(quantile, confidence=CONFIDENCE)


def margin(slo: Slo, value: float | None) -> float | None:
    """Distance to the bound as a share of it, negative when missed; see `SloResult`."""
    if value is None:
        return None
    distance = slo.bound - value if slo.metric.better is Better.LOWER else value - slo.bound
    return distance if slo.bound == 0 else distance / slo.bound
