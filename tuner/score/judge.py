"""Holds measurements against SLOs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tuner.load.latency.steadiness import unsteadiness
from tuner.load.measurement import LatencySource, Measurement
from tuner.load.window_length import requests_needed
from tuner.score.verdict import SloResult, Verdict
from tuner.spec.slo import Comparison, Metric, Slo

#: A percentile from too few requests for this confidence (299 for p99) is no verdict.
CONFIDENCE = 0.95
#: Quantiles from here on bound the tail, and so say which answers were in time.
TAIL = 0.9


def value_of(metric: Metric, measurement: Measurement) -> float | None:
    """The metric in its base unit, or None when this measurement does not have it."""
    readings: dict[Metric, float | None] = {
        Metric.P50_LATENCY: measurement.p50_latency_us,
        Metric.P90_LATENCY: measurement.p90_latency_us,
        Metric.P95_LATENCY: measurement.p95_latency_us,
        Metric.P99_LATENCY: measurement.p99_latency_us,
        Metric.AVG_LATENCY: measurement.avg_latency_us,
        Metric.ERROR_RATE: measurement.error_rate,
        Metric.THROUGHPUT: measurement.throughput_infer_per_s,
        Metric.GPU_MEMORY: measurement.host.gpu_memory_used_bytes,
    }
    value = readings[metric]
    return None if value is None or math.isnan(value) else float(value)


def judge(slo: Slo, measurement: Measurement) -> SloResult:
    """One SLO against one measurement.

    A missing or too small sample is never a pass, nor is a load that the server falls behind.
    """
    value = _value(slo.metric, measurement)
    verdict, reason = _verdict(slo, value, measurement), ""
    if verdict is Verdict.PASS and (reason := unsteadiness(measurement)):
        verdict = Verdict.NOT_STEADY
    return SloResult(
        expression=str(slo),
        metric=slo.metric.value,
        bound=slo.bound,
        value=value,
        verdict=verdict,
        margin=margin(slo, value),
        reason=reason,
    )


def judge_all(slos: Iterable[Slo], measurement: Measurement) -> tuple[SloResult, ...]:
    return tuple(judge(slo, measurement) for slo in slos)


def passes(results: Sequence[SloResult]) -> bool:
    """True when there is a verdict on every SLO and each is a pass."""
    return bool(results) and all(r.verdict is Verdict.PASS for r in results)


def undecided(results: Sequence[SloResult]) -> bool:
    """True when no SLO is missed but there were too few answers for a verdict on one."""
    verdicts = {r.verdict for r in results}
    return Verdict.NOT_ENOUGH_DATA in verdicts and not any(v.missed for v in verdicts)


def stress(results: Sequence[SloResult]) -> float | None:
    """The largest share of a bound that was used up, above 1 when missed; None without readings.

    Only SLOs whose bound is not zero have one. An error rate above its bound without a latency
    over its own is a miss that no stress tells of.
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


def in_time_rate(slos: Iterable[Slo], measurement: Measurement) -> float | None:
    """Inferences per second answered within the latency bound of the highest percentile SLO.

    None without a tail-latency SLO (p90 and up) or without each request's latency.
    """
    tail = tail_slo(slos)
    latencies = measurement.latencies_us
    if tail is None or latencies is None or measurement.source is not LatencySource.REQUESTS:
        return None
    in_time = int(latencies.searchsorted(tail.bound, side="right"))
    return in_time * measurement.batch_size / measurement.duration_s


def tail_slo(slos: Iterable[Slo]) -> Slo | None:
    """The SLO on the highest percentile of the latency, if any bounds its tail."""
    tails = [s for s in slos if (s.metric.quantile or 0.0) >= TAIL]
    return max(tails, key=lambda s: (s.metric.quantile, -s.bound), default=None)


def _value(metric: Metric, measurement: Measurement) -> float | None:
    """As `value_of`, but a percentile ranks what was refused or failed above all latencies.

    So late answers and lost ones share what the percentile allows: of 3000 requests 30 may be late
    or lost. Needs each request's latency; without them the percentile is of the answers alone.
    """
    value, latencies = value_of(metric, measurement), measurement.latencies_us
    lost = measurement.failed_count
    each = latencies is not None and measurement.source is LatencySource.REQUESTS
    if metric.quantile is None or not lost or latencies is None or not each:
        return value
    rank = math.ceil(metric.quantile * (latencies.size + lost))
    return float(latencies[rank - 1]) if rank <= latencies.size else value


def tightest_latency(slos: Iterable[Slo]) -> Slo | None:
    """The lowest upper bound on a latency, if there is one."""
    bounds = [s for s in slos if s.metric.is_latency and s.comparison is Comparison.AT_MOST]
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
        quantile, 0, CONFIDENCE
    ):
        return Verdict.NOT_ENOUGH_DATA
    return Verdict.PASS


def margin(slo: Slo, value: float | None) -> float | None:
    """Distance to the bound as a share of it, negative when missed; see `SloResult`."""
    if value is None:
        return None
    distance = slo.bound - value if slo.comparison is Comparison.AT_MOST else value - slo.bound
    return distance if slo.bound == 0 else distance / slo.bound
