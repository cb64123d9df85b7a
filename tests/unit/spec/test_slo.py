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
)
from tuner.spec.slo import Goal, Objective, Slo


@pytest.mark.parametrize(
    ("text", "metric", "bound", "normal"),
    [
        ("p99_latency <= 60ms", P99_LATENCY, 60_000, "p99_latency <= 60ms"),
        ("p50_latency<=0.5 ms", P50_LATENCY, 500, "p50_latency <= 500us"),
        ("avg_latency <= 1500ms", AVG_LATENCY, 1_500_000, "avg_latency <= 1.5s"),
        (
            "p99_first_response <= 0.2s",
            METRICS["p99_first_response"],
            200_000,
            "p99_first_response <= 200ms",
        ),
        (
            "p50_last_response <= 2s",
            METRICS["p50_last_response"],
            2_000_000,
            "p50_last_response <= 2s",
        ),
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
def test_slo_is_parsed_from_its_text(metric: Metric, bound: float) -> None:
    slo = Slo(metric, bound, "")
    assert Slo.parse(str(slo)) == slo
    pattern = TypeAdapter(Slo).json_schema()["pattern"]
    assert re.search(pattern, str(slo))


def test_p99_needs_459_requests() -> None:
    needed = {metric: metric.requests_needed for metric in METRICS.values()}
    assert needed[P99_LATENCY] == 459
    assert needed[P95_LATENCY] == 90
    assert needed[AVG_LATENCY] == needed[ERROR_RATE] == 1


def test_goodput_is_maximized_without_a_metric() -> None:
    objective = Objective.parse("  maximize   goodput ")
    assert objective == Objective.goodput()
    assert (objective.goal, objective.metric) == (Goal.MAXIMIZE_GOODPUT, None)
    assert str(objective) == "maximize goodput"


@pytest.mark.parametrize(
    ("text", "metric", "level", "is_rate"),
    [
        ("minimize p99_latency at 300/s", P99_LATENCY, 300, True),
        ("minimize gpu_memory at 0.5/s", GPU_MEMORY, 0.5, True),
        ("minimize avg_latency at 16", AVG_LATENCY, 16, False),
    ],
)
def test_a_metric_at_a_load(text: str, metric: Metric, level: float, is_rate: bool) -> None:
    objective = Objective.parse(text)
    assert objective.goal is Goal.MINIMIZE
    assert (objective.metric, objective.at_level, objective.at_rate) == (metric, level, is_rate)
    assert str(objective) == objective.expression == text
    assert re.search(TypeAdapter(Objective).json_schema()["pattern"], text)
