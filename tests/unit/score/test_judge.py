from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from synthetic import NO_ERRORS, P99_40MS, synthetic_measurement

from tuner.load.measurement import LatencySource
from tuner.score.judge import in_time_rate, judge, passes, violation
from tuner.score.verdict import Verdict
from tuner.spec.slo import Comparison, Metric, Slo


def test_a_latency_under_its_bound_passes_with_its_margin() -> None:
    result = judge(P99_40MS, synthetic_measurement(p99_us=30_000))
    assert result.verdict is Verdict.PASS
    assert result.margin == pytest.approx(0.25)


def test_a_latency_over_its_bound_fails_with_a_negative_margin() -> None:
    result = judge(P99_40MS, synthetic_measurement(p99_us=60_000))
    assert result.verdict is Verdict.FAIL
    assert result.margin == pytest.approx(-0.5)


def test_too_few_requests_never_pass_a_percentile() -> None:
    few = synthetic_measurement(p99_us=10_000, count=298)
    enough = synthetic_measurement(p99_us=10_000, count=299)
    assert judge(P99_40MS, few).verdict is Verdict.NOT_ENOUGH_DATA
    assert judge(P99_40MS, enough).verdict is Verdict.PASS


def test_too_few_requests_may_fail_a_percentile() -> None:
    assert judge(P99_40MS, synthetic_measurement(p99_us=90_000, count=20)).verdict is Verdict.FAIL


def test_a_missing_reading_is_never_a_pass() -> None:
    memory = Slo(Metric.GPU_MEMORY, Comparison.AT_MOST, 1e9, "gpu_memory <= 1GB")
    result = judge(memory, synthetic_measurement())
    assert result.verdict is Verdict.NOT_ENOUGH_DATA
    assert result.value is None
    assert not passes([result])
    assert violation([result]) == 1.0


def test_nan_is_a_missing_reading() -> None:
    broken = dataclasses.replace(synthetic_measurement(), p99_latency_us=math.nan)
    assert judge(P99_40MS, broken).verdict is Verdict.NOT_ENOUGH_DATA


def test_nothing_answered_has_no_error_rate() -> None:
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


def test_no_results_are_no_pass() -> None:
    assert not passes([])


def test_in_time_rate_counts_answers_within_the_tail_bound() -> None:
    measurement = synthetic_measurement(p99_us=80_000, count=1000, duration_s=2.0)
    rate = in_time_rate([P99_40MS], measurement)
    late = int((measurement.latencies_us > 40_000).sum())  # type: ignore[operator,union-attr]
    assert rate == pytest.approx((1000 - late) / 2.0)


def test_in_time_rate_needs_each_latency_and_a_tail() -> None:
    windows = dataclasses.replace(synthetic_measurement(), source=LatencySource.WINDOWS)
    assert in_time_rate([P99_40MS], windows) is None
    assert in_time_rate([NO_ERRORS], synthetic_measurement()) is None
