"""Whether a measurement meets the SLOs: pass, fail, not steady or not enough data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, assert_never

from pydantic import AfterValidator, Field, computed_field

from tuner.facts import Facts, is_empty, is_none
from tuner.measurement.measurement import Arrivals, Figures, Measurement
from tuner.reason import Reason, ReasonKind
from tuner.sentences import sentence
from tuner.spec.metrics import Better, Metric, parse_metric
from tuner.spec.slo import Slo, hardest

#: SLO utilisation up to which noise alone may explain a miss, where the noise was not measured: two
#: standard deviations of a p99 near its bound, of about 5% each.
NEAR_MISS = 1.10


class SloOutcome(Enum):
    """The result of measurements for all SLOs. `TOO_FEW` is no miss: the SLOs are undecided."""

    MET = "met"
    MISSED = "missed"
    TOO_FEW = "too few answers"

    @property
    def met(self) -> bool | None:
        """None where the SLOs are undecided."""
        return None if self is SloOutcome.TOO_FEW else self is SloOutcome.MET


class Verdict(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOT_STEADY = "not steady"  # within the bound, but latency or queue grows
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


#: The worst verdict first.
_ORDER = (Verdict.FAIL, Verdict.NOT_STEADY, Verdict.NOT_ENOUGH_DATA, Verdict.PASS)


@dataclass(frozen=True)
class SloResult(Facts):
    """The result of one measurement for one SLO.

    Attributes:
        expression: The SLO as in the spec, such as ``p99_latency <= 100 ms``.
        metric: The metric's name.
        bound: In the metric's base unit, like ``value``: microseconds, a share (0 to 1), per
            second, or bytes.
        value: The metric's value; None if it was not measured.
        margin: Distance to the bound as a share of the bound, negative if missed; for a bound of 0,
            the distance itself.
        why_unsteady: Why latency or queue grows; None where neither is known to grow.
        stream: The stream whose requests count; empty without streams.
        answered: The number of answers, where these were too few for a verdict.
        needed: The number of answers that a verdict needs, where there were too few.
    """

    expression: str
    metric: Annotated[str, AfterValidator(lambda name: parse_metric(name).name)]
    bound: float
    value: float | None
    verdict: Verdict
    margin: float | None
    why_unsteady: Annotated[Reason | None, Field(alias="reason_data")] = None
    stream: Annotated[str, Field(exclude_if=is_empty)] = ""
    answered: Annotated[int | None, Field(exclude_if=is_none)] = None
    needed: Annotated[int | None, Field(exclude_if=is_none)] = None

    @computed_field(alias="reason")  # type: ignore[prop-decorator]
    @property
    def reason(self) -> str:
        """``why_unsteady`` as a sentence; empty without one."""
        return "" if self.why_unsteady is None else sentence(self.why_unsteady)


def rank(verdict: Verdict) -> int:
    return _ORDER.index(verdict)


def severity(result: SloResult) -> tuple[int, float]:
    """Sort key: the worst verdict first; of equal verdicts, the least margin first."""
    return rank(result.verdict), 0.0 if result.margin is None else result.margin


#: Share of the requests due in a window that may be answered after its end.
BEHIND = 0.01
#: Further requests that may be answered after the window's end, as a multiple of the square root of
#: the number due: the numbers in flight at its start and end vary by chance. This is two standard
#: deviations in queues at 0.95 of their saturation (tests/unit/score/test_steadiness.py).
BY_CHANCE = 0.6
#: Least growth of the latency that is a trend: as a share of its mean, in standard errors, and as a
#: share of its bound, which an overload of 1% adds in the shortest window.
GROWTH, SURE, OF_BOUND = 0.5, 3.0, 0.1


def unsteadiness(measurement: Figures, bound_us: float) -> Reason | None:
    """Why queue or latency grows; None where neither is known to grow.

    The queue grows if fewer requests were answered than were due, by more than chance explains.
    The latency grows if its linear trend over the window is larger than chance explains. A closed
    loop is always steady. For a recording, only the queue is tested.

    Args:
        bound_us: The SLO's bound on a latency, in microseconds; infinite for another metric.
    """
    if not measurement.load.arrivals.open_loop:
        return None
    behind, course = behind_share(measurement), measurement.course
    if behind is not None:
        return Reason(ReasonKind.ANSWERS_BEHIND, facts={"answered_percent": 100 * (1 - behind)})
    uneven = measurement.load.arrivals is Arrivals.RECORDING  # so is latency
    if (
        uneven
        or course is None
        or course.growth * measurement.avg_latency_us <= OF_BOUND * bound_us
    ):
        return None
    if course.growth > max(GROWTH, SURE * course.growth_error):
        facts = {"growth_percent": 100 * course.growth}
        return Reason(ReasonKind.LATENCY_GROWS_IN_WINDOW, facts=facts)
    return None


def behind_share(measurement: Figures) -> float | None:
    """The share of the requests due that was not answered; None where chance explains it."""
    rate = measurement.due_per_s
    if not rate:
        return None
    due = rate * measurement.duration_s
    behind = due - (measurement.completed_count + measurement.failed_count)
    # two standard deviations of the difference of two Poisson counts with the mean in flight
    at_ends = 2.0 * math.sqrt(2.0 * (measurement.mean_in_flight or 0.0))
    allowed = BEHIND * due + max(BY_CHANCE * math.sqrt(due), at_ends)
    return behind / due if behind > allowed else None


#: An SLO on this quantile or a higher one bounds the tail: it defines which answers are late.
TAIL = 0.9


def value_of(metric: Metric, measurement: Figures | None, lost: int = 0) -> float | None:
    """The metric in its base unit; None where the measurement lacks it.

    ``lost``: the number of failed requests, which a percentile ranks above all latencies where each
    latency is known.
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
    """The result of a measurement for one SLO; of a mix, by the figures of the SLO's stream.

    ``lasting``: the verdict is not a pass where latency or queue grows.
    """
    stream = measurement.of(slo.stream)
    value = None if stream is None else value_of(slo.metric, stream, stream.failed_count)
    verdict = Verdict.NOT_ENOUGH_DATA if stream is None else _verdict(slo, value, stream)
    why_unsteady = None
    bound_us = slo.bound if slo.metric.is_latency else math.inf
    if lasting and verdict is Verdict.PASS and stream is not None:
        why_unsteady = unsteadiness(stream, bound_us)
    if why_unsteady is not None:
        verdict = Verdict.NOT_STEADY
    quantile, short = slo.metric.quantile, verdict is Verdict.NOT_ENOUGH_DATA
    needed = slo.metric.requests_searched if short and quantile is not None else None
    answered = 0 if stream is None else stream.completed_count
    return SloResult(
        expression=str(slo),
        metric=slo.metric.name,
        bound=slo.bound,
        value=value,
        verdict=verdict,
        margin=margin(slo, value),
        why_unsteady=why_unsteady,
        stream=slo.stream,
        answered=None if needed is None else answered,
        needed=needed,
    )


def judge_all(slos: Sequence[Slo], measurement: Measurement) -> tuple[SloResult, ...]:
    """The result for every SLO, in order.

    Growth of latency or queue counts for the latency SLOs of a stream, or for all without any.
    """
    timed = {slo.stream for slo in slos if slo.metric.is_latency}
    lasting = [slo.metric.is_latency or slo.stream not in timed for slo in slos]
    return tuple(judge(s, measurement, lasting=la) for s, la in zip(slos, lasting, strict=True))


def outcome_of(results: Sequence[SloResult]) -> SloOutcome:
    """The outcome of all SLOs together: missed if any is, else undecided if any is."""
    outcomes = {r.verdict.outcome for r in results} or {SloOutcome.TOO_FEW}
    return next(o for o in (SloOutcome.MISSED, SloOutcome.TOO_FEW, SloOutcome.MET) if o in outcomes)


def outcome_of_rounds(outcomes: Sequence[SloOutcome]) -> SloOutcome:
    """The outcome of at least half of the rounds, met before missed; else `TOO_FEW`."""
    for one in (SloOutcome.MET, SloOutcome.MISSED):
        if outcomes and 2 * outcomes.count(one) >= len(outcomes):
            return one
    return SloOutcome.TOO_FEW


def too_few_text(results: Sequence[SloResult]) -> str:
    """`too few answers (290 of 299)`, of the SLO that lacks most, or `gpu_memory not measured`."""
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
    """The largest value as a share of its bound, of bounds other than 0; None without values."""
    shares = [1.0 - r.margin for r in results if r.margin is not None and r.bound != 0]
    return max(shares, default=None)


def violation(results: Sequence[SloResult]) -> float:
    """How far the SLOs are missed: the sum of the excesses over the bounds, as shares of these.

    An SLO without enough data, or without a steady load, adds 1, so that no search prefers it.
    """
    total = 0.0
    for result in results:
        if result.verdict in (Verdict.NOT_ENOUGH_DATA, Verdict.NOT_STEADY):
            total += 1.0
        elif result.verdict is Verdict.FAIL:
            total += max(-(result.margin or 0.0), 1e-6)
    return total


def tail_slo(slos: Iterable[Slo]) -> Slo | None:
    """The SLO on the highest percentile of the latency from `TAIL` on; None without one."""
    return hardest(s for s in slos if (s.metric.quantile or 0.0) >= TAIL)


def tails(slos: Sequence[Slo]) -> list[Slo]:
    """`tail_slo` of each stream that has one."""
    streams = dict.fromkeys(slo.stream for slo in slos)
    slos_ = (tail_slo(slo for slo in slos if slo.stream == stream) for stream in streams)
    return [slo for slo in slos_ if slo is not None]


def tightest_latency(slos: Iterable[Slo]) -> Slo | None:
    """The SLO with the lowest bound on the time to the complete response; None without one."""
    bounds = [s for s in slos if s.metric.of_full_response]
    return min(bounds, key=lambda s: s.bound, default=None)


def _verdict(slo: Slo, value: float | None, measurement: Figures) -> Verdict:
    if value is None:
        return Verdict.NOT_ENOUGH_DATA
    quantile = slo.metric.quantile
    # A refused or failed request has no latency, and counts as late.
    too_many_lost = quantile is not None and (measurement.error_rate or 0.0) > 1.0 - quantile
    if too_many_lost or not slo.met_by(value):
        return Verdict.FAIL
    if quantile is not None and measurement.completed_count < slo.metric.requests_searched:
        return Verdict.NOT_ENOUGH_DATA
    return Verdict.PASS


def margin(slo: Slo, value: float | None) -> float | None:
    """Distance to the bound as a share of it, negative if missed; see `SloResult`."""
    if value is None:
        return None
    distance = slo.bound - value if slo.metric.better is Better.LOWER else value - slo.bound
    return distance if slo.bound == 0 else distance / slo.bound
