"""Holds measurements against SLOs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tuner.measurement.measurement import LatencySource, Measurement
from tuner.measurement.window import CONFIDENCE
from tuner.score.steadiness import unsteadiness
from tuner.score.verdict import SloResult, Verdict
from tuner.spec.metrics import Better, Metric, requests_needed
from tuner.spec.slo import Slo

#: Quantiles from here on bound the tail, and so say which answers were in time.
TAIL = 0.9


def value_of(metric: Metric, measurement: Measurement | None, lost: int = 0) -> float | None:
    """The metric in its base unit, or None when this measurement does not have it.

    ``lost``: requests that a percentile ranks above all latencies, so that late answers and lost
    ones share what it allows: of 3000 requests 30 may be late or lost. Needs each request's
    latency; without them the percentile is of the answers alone.
    """
    if measurement is None:
        return None
    value: Any = measurement
    for name in metric.reading.split("."):
        value = getattr(value, name, None)
    latencies, quantile = measurement.latencies_us, metric.quantile
    each = latencies is not None and measurement.source is LatencySource.REQUESTS
    if quantile is not None and latencies is not None and each and (lost or value is None):
        rank = math.ceil(quantile * (latencies.size + lost))
        value = latencies[rank - 1] if rank <= latencies.size else value
    return None if value is None or math.isnan(value) else float(value)


def judge(slo: Slo, measurement: Measurement, *, lasting: bool = True) -> SloResult:
    """One SLO against one measurement, of a mix against that of its stream.

    A missing or too small sample is never a pass, and neither, where it must be ``lasting``, is a
    load the server cannot follow.
    """
    own = measurement.of(slo.stream)
    value = None if own is None else value_of(slo.metric, own, own.failed_count)
    verdict = Verdict.NOT_ENOUGH_DATA if own is None else _verdict(slo, value, own)
    reason = ""
    bound_us = slo.bound if slo.metric.is_latency else math.inf
    if lasting and verdict is Verdict.PASS and own is not None:
        reason = unsteadiness(own, bound_us)
    if reason:
        verdict = Verdict.NOT_STEADY
    return SloResult(
        expression=str(slo),
        metric=slo.metric.name,
        bound=slo.bound,
        value=value,
        verdict=verdict,
        margin=margin(slo, value),
        reason=reason,
        stream=slo.stream,
    )


def judge_all(slos: Sequence[Slo], measurement: Measurement) -> tuple[SloResult, ...]:
    """Judges every SLO; a load that does not last is told by its latencies if one is bounded."""
    timed = {slo.stream for slo in slos if slo.metric.is_latency}
    lasting = [slo.metric.is_latency or slo.stream not in timed for slo in slos]
    return tuple(judge(s, measurement, lasting=la) for s, la in zip(slos, lasting, strict=True))


def passes(results: Sequence[SloResult]) -> bool:
    """True when there is a verdict on every SLO and each is a pass."""
    return bool(results) and all(r.verdict is Verdict.PASS for r in results)


def undecided(results: Sequence[SloResult]) -> bool:
    """True when no SLO is missed but there were too few answers for a verdict on one."""
    verdicts = {r.verdict for r in results}
    return Verdict.NOT_ENOUGH_DATA in verdicts and not any(v.missed for v in verdicts)


def slo_utilisation(results: Sequence[SloResult]) -> float | None:
    """The largest share of a bound that was used up, above 1 when missed; None without readings.

    Only SLOs whose bound is not zero have one. Where only the error rate exceeds its bound,
    utilisation does not show the miss.
    """
    shares = [1.0 - r.margin for r in results if r.margin is not None and r.bound != 0]
    return max(shares, default=None)


def violation(results: Sequence[SloResult]) -> float:
    """How far the SLOs are missed: the sum of overshoots as shares of their bounds.

    0 when all pass. An SLO without enough data, or under a load that is not steady, counts as
    missed by its whole bound: the search must not learn to like configs that cannot be judged.
    """
    total = 0.0
    for result in results:
        if result.verdict in (Verdict.NOT_ENOUGH_DATA, Verdict.NOT_STEADY):
            total += 1.0
        elif result.verdict is Verdict.FAIL:
            total += max(-(result.margin or 0.0), 1e-6)
    return total


def in_time_rate(slos: Sequence[Slo], measurement: Measurement) -> float | None:
    """Inferences per second answered within the latency bound of the highest percentile SLO.

    None without a tail-latency SLO (p90 and up) or without each request's latency. Each stream is
    held to its own; all answers are in time of one that has none.
    """
    rates = {name: _in_time_rate(slos, name, own) for name, own in measurement.shared.items()}
    if all(rate is None for rate in rates.values()):
        return None
    return sum(
        own.throughput_infer_per_s if (rate := rates[name]) is None else rate
        for name, own in measurement.shared.items()
    )


def _in_time_rate(slos: Sequence[Slo], stream: str, measurement: Measurement) -> float | None:
    tail = tail_slo(slo for slo in slos if slo.holds_for(stream))
    latencies = measurement.latencies_us
    if tail is None or latencies is None or measurement.source is not LatencySource.REQUESTS:
        return None
    in_time = int(latencies.searchsorted(tail.bound, side="right"))
    return in_time * measurement.batch_size / measurement.duration_s


def tail_slo(slos: Iterable[Slo]) -> Slo | None:
    """The SLO on the highest percentile of the latency, if any bounds its tail."""
    tails = [s for s in slos if (s.metric.quantile or 0.0) >= TAIL]
    return max(tails, key=lambda s: (s.metric.quantile, -s.bound), default=None)


def tails(slos: Sequence[Slo]) -> list[Slo]:
    """`tail_slo` of each stream that has one."""
    streams = dict.fromkeys(slo.stream for slo in slos)
    found = (tail_slo(slo for slo in slos if slo.stream == stream) for stream in streams)
    return [slo for slo in found if slo is not None]


def tightest_latency(slos: Iterable[Slo]) -> Slo | None:
    """The lowest upper bound on a latency, if there is one."""
    bounds = [s for s in slos if s.metric.is_latency]
    return min(bounds, key=lambda s: s.bound, default=None)


def _verdict(slo: Slo, value: float | None, measurement: Measurement) -> Verdict:
    if value is None:
        return Verdict.NOT_ENOUGH_DATA
    quantile = slo.metric.quantile
    # A refused or failed request has no latency; it was not answered in time all the same.
    too_many_lost = quantile is not None and (measurement.error_rate or 0.0) > 1.0 - quantile
    if too_many_lost or not slo.met_by(value):
        return Verdict.FAIL
    if quantile is not None and measurement.completed_count < requests_needed(
        quantile, confidence=CONFIDENCE
    ):
        return Verdict.NOT_ENOUGH_DATA
    return Verdict.PASS


def margin(slo: Slo, value: float | None) -> float | None:
    """Distance to the bound as a share of it, negative when missed; see `SloResult`."""
    if value is None:
        return None
    distance = slo.bound - value if slo.metric.better is Better.LOWER else value - slo.bound
    return distance if slo.bound == 0 else distance / slo.bound
