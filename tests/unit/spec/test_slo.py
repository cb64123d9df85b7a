from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tuner.spec.metrics import (
    AVG_LATENCY,
    ERROR_RATE,
    GPU_MEMORY,
    METRICS,
    P50_LATENCY,
    P95_LATENCY,
    P99_LATENCY,
    THROUGHPUT,
    Metric,
    parse_metric,
)
from tuner.spec.slo import Slo


@pytest.mark.parametrize(
    ("text", "metric", "bound", "normal"),
    [
        ("p99_latency <= 60ms", P99_LATENCY, 60_000, "p99_latency <= 60ms"),
        ("p50_latency<=0.5 ms", P50_LATENCY, 500, "p50_latency <= 500us"),
        ("avg_latency <= 1500ms", AVG_LATENCY, 1_500_000, "avg_latency <= 1.5s"),
        ("error_rate <= 0.5%", ERROR_RATE, 0.005, "error_rate <= 0.5%"),
        ("error_rate <= 0", ERROR_RATE, 0, "error_rate <= 0%"),
        ("error_rate <= 100%", ERROR_RATE, 1, "error_rate <= 100%"),
        ("throughput >= 300/s", THROUGHPUT, 300, "throughput >= 300/s"),
        ("gpu_memory <= 8 GiB", GPU_MEMORY, 8 << 30, "gpu_memory <= 8GiB"),
    ],
)
def test_reads_a_bound_in_base_units(text: str, metric: Metric, bound: float, normal: str) -> None:
    slo = Slo.parse(text)
    assert (slo.metric, slo.bound, str(slo)) == (metric, bound, normal)
    assert Slo.parse(str(slo)) == slo


_LATENCIES = [metric for metric in METRICS.values() if metric.is_latency]


@given(st.sampled_from(_LATENCIES), st.floats(min_value=1e-3, max_value=1e12))
def test_its_text_gives_it_back(metric: Metric, bound: float) -> None:
    slo = Slo(metric, bound, "")
    assert Slo.parse(str(slo)) == slo
    pattern = TypeAdapter(Slo).json_schema()["pattern"]
    assert re.search(pattern, str(slo))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("p99", "p99_latency"),
        ("latency_p99", "p99_latency"),
        ("p99_latency_us", "p99_latency"),
        ("perf_latency_p95", "p95_latency"),
        ("P99_latency", "p99_latency"),
        ("p99_latancy", "p99_latency"),
        ("latency", "p99_latency"),
        ("mean_latency", "avg_latency"),
        ("eror_rate", "error_rate"),
        ("qps", "throughput"),
        ("gpu_used_memory", "gpu_memory"),
    ],
)
def test_mistyped_metrics_are_guessed(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"did you mean {meant}\?"):
        parse_metric(name)


@pytest.mark.parametrize("name", ["p999_latency", "p99.9_latency", "p75"])
def test_other_percentiles_are_not_guessed(name: str) -> None:
    with pytest.raises(ValueError, match="percentiles are p50, p90, p95 and p99"):
        parse_metric(name)


def test_unknown_metrics_are_listed() -> None:
    with pytest.raises(ValueError, match="unknown metric 'colour'; metrics are p50_latency"):
        parse_metric("colour")


def test_p99_needs_459_requests() -> None:
    needed = {metric: metric.requests_needed for metric in METRICS.values()}
    assert needed[P99_LATENCY] == 459
    assert needed[P95_LATENCY] == 90
    assert needed[AVG_LATENCY] == needed[ERROR_RATE] == 1
