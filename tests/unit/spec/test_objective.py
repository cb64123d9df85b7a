from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter

from tuner.spec.metrics import AVG_LATENCY, GPU_MEMORY, P99_LATENCY, Metric
from tuner.spec.slo import Goal, Objective


def test_goodput() -> None:
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maximise goodput", "did you mean maximize goodput?"),
        ("maximize throughput", "did you mean maximize goodput?"),
        ("maximize goodput of chat", "give each of them a rate instead of a share"),
        ("minimise p99_latency at 300/s", "did you mean minimize p99_latency at 300/s?"),
        ("minimize p99 at 300/s", "did you mean p99_latency?"),
        ("minimize p99_latency", "at which load?"),
        ("minimize p99_latency at 1.5", "a rate is written 1.5/s"),
        ("minimize p99_latency at 0/s", "must be above 0"),
        ("minimize p99_latency at noon", "is not an objective"),
        ("minimize throughput at 300/s", "write maximize goodput"),
        ("minimize error_rate at 300/s", "bounded by an SLO"),
        ("", "write maximize goodput, minimize p99_latency at 300/s or"),
    ],
)
def test_errors_say_what_to_write(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as error:
        Objective.parse(text)
    assert expected in str(error.value)
