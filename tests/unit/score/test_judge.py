from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement

from tuner.measurement.measurement import Measurement
from tuner.score.judge import (
    SloOutcome,
    SloResult,
    Verdict,
    judge,
    outcome_of,
    severity,
    slo_utilisation,
    tail_slo,
    tightest_latency,
    violation,
)
from tuner.spec.metrics import GPU_MEMORY
from tuner.spec.slo import Slo

AT_LEAST = Slo.parse("throughput >= 100/s")


@pytest.mark.parametrize(
    ("slo", "measured", "verdict", "margin"),
    [
        (P99_40MS, synthetic_measurement(p99_us=30_000), Verdict.PASS, 0.25),
        (P99_40MS, synthetic_measurement(p99_us=40_000), Verdict.PASS, 0.0),
        (P99_40MS, synthetic_measurement(p99_us=60_000), Verdict.FAIL, -0.5),
        (P99_40MS, synthetic_measurement(p99_us=10_000, count=299), Verdict.PASS, 0.75),
        (P99_40MS, synthetic_measurement(p99_us=10_000, count=298), Verdict.NOT_ENOUGH_DATA, 0.75),
        (P99_40MS, synthetic_measurement(p99_us=90_000, count=20), Verdict.FAIL, -1.25),
        (AT_LEAST, synthetic_measurement(80), Verdict.FAIL, -0.2),
        (AT_LEAST, synthetic_measurement(150), Verdict.PASS, 0.5),
    ],
)
def test_reading_is_compared_with_its_bound_and_too_few_requests_never_pass(
    slo: Slo, measured: Measurement, verdict: Verdict, margin: float
) -> None:
    result = judge(slo, measured)
    assert result.verdict is verdict
    assert result.margin == pytest.approx(margin)


def test_a_missing_reading_is_never_a_pass() -> None:
    memory = Slo(GPU_MEMORY, 1e9, "gpu_memory <= 1GB")
    result = judge(memory, synthetic_measurement())
    assert result.verdict is Verdict.NOT_ENOUGH_DATA
    assert result.value is None
    assert outcome_of([result]) is not SloOutcome.MET
    assert outcome_of([]) is not SloOutcome.MET
    assert violation([result]) == 1.0


def test_nan_is_a_missing_reading_and_nothing_answered_has_no_error_rate() -> None:
    broken = dataclasses.replace(synthetic_measurement(), p99_latency_us=math.nan)
    assert judge(P99_40MS, broken).verdict is Verdict.NOT_ENOUGH_DATA
    nothing = dataclasses.replace(synthetic_measurement(), completed_count=0, failed_count=0)
    assert judge(NO_ERRORS, nothing).verdict is Verdict.NOT_ENOUGH_DATA


def test_one_error_fails_an_error_rate_of_zero() -> None:
    result = judge(NO_ERRORS, synthetic_measurement(failed=1))
    assert result.verdict is Verdict.FAIL
    assert violation([result]) > 0


def test_refusing_requests_does_not_meet_a_percentile() -> None:
    few = synthetic_measurement(p99_us=10_000, count=1000, failed=5)
    many = synthetic_measurement(p99_us=10_000, count=1000, failed=50)
    assert judge(P99_40MS, few).verdict is Verdict.PASS
    assert judge(P99_40MS, many).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("late", "lost", "verdict"),
    [(30, 0, "pass"), (0, 30, "pass"), (15, 15, "pass"), (29, 29, "fail"), (16, 15, "fail")],
)
def test_late_and_lost_requests_share_what_a_percentile_allows(
    late: int, lost: int, verdict: str
) -> None:
    latencies = np.concatenate([np.full(3000 - late - lost, 20e3), np.full(late, 50e3)])
    measurement = dataclasses.replace(
        synthetic_measurement(p99_us=20e3, count=3000 - lost, failed=lost), latencies_us=latencies
    )
    assert judge(P99_40MS, measurement).verdict is Verdict(verdict)


def test_the_tail_begins_at_the_90th_percentile_and_the_tightest_of_the_highest_counts() -> None:
    texts = "p50_latency <= 1ms", "p90_latency <= 9ms", "p99_latency <= 40ms", "p99_latency <= 30ms"
    p50, p90, p99, tight = map(Slo.parse, texts)
    assert tail_slo([p50, p90]) == p90
    assert tail_slo([p50]) is None
    assert tail_slo([p99, p90, p50]) == p99
    assert tail_slo([p99, tight]) == tail_slo([tight, p99]) == tight


def test_the_tightest_latency_is_the_lowest_upper_bound_on_any() -> None:
    texts = "p99_latency <= 40ms", "avg_latency <= 5ms", "p50_latency <= 9ms", "throughput >= 1/s"
    p99, mean, median, rate = map(Slo.parse, texts)
    assert tightest_latency([p99, mean, median, rate]) == mean
    assert tightest_latency([rate, NO_ERRORS]) is None


def test_a_bound_of_zero_has_its_distance_as_margin_and_no_stress() -> None:
    clean, broken = (judge(NO_ERRORS, synthetic_measurement(failed=n)) for n in (0, 1000))
    assert (clean.margin, broken.margin) == (0.0, -0.5)
    assert slo_utilisation([clean, broken]) is None
    late = judge(P99_40MS, synthetic_measurement(p99_us=60_000))
    assert slo_utilisation(
        [broken, late, judge(P99_40MS, synthetic_measurement())]
    ) == pytest.approx(1.5)


def test_violations_add_up_and_a_failure_is_never_none() -> None:
    late = judge(P99_40MS, synthetic_measurement(p99_us=60_000))
    unknown = judge(P99_40MS, synthetic_measurement(p99_us=10_000, count=5))
    refused = judge(P99_40MS, synthetic_measurement(p99_us=10_000, failed=500))
    assert violation([late, late]) == pytest.approx(1.0)
    assert violation([late, unknown]) == pytest.approx(1.5)
    assert violation([refused]) == 1e-6
    assert violation([judge(P99_40MS, synthetic_measurement())]) == 0.0
    assert violation([]) == 0.0


def test_the_worst_verdict_comes_first_then_the_least_margin() -> None:
    late = judge(P99_40MS, synthetic_measurement(p99_us=60_000))
    refused = judge(P99_40MS, synthetic_measurement(p99_us=10_000, failed=500))
    few = judge(P99_40MS, synthetic_measurement(p99_us=10_000, count=5))
    unread = dataclasses.replace(few, value=None, margin=None)
    close = judge(P99_40MS, synthetic_measurement(p99_us=39_000))
    far = judge(P99_40MS, synthetic_measurement(p99_us=10_000))
    expected = [late, refused, unread, few, close, far]
    assert sorted([close, late, few, far, unread, refused], key=severity) == expected
    overdrawn = dataclasses.replace(few, margin=-0.5)
    assert min(unread, overdrawn, key=severity) is overdrawn


@pytest.mark.parametrize("wrong", [{"metric": "p9_latency"}, {"verdict": "passed"}])
def test_a_stored_result_about_no_metric_or_verdict_is_not_read(wrong: dict[str, str]) -> None:
    stored = judge(P99_40MS, synthetic_measurement()).to_json()
    assert SloResult.from_json(stored).metric == "p99_latency"
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SloResult.from_json({**stored, **wrong})
