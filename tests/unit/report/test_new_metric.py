"""One entry in the table of metrics is all that a new metric needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from builders.measurements import synthetic_measurement
from pydantic import TypeAdapter

from tuner.cli.ui.words import slo_text
from tuner.measurement.measurement import ServerStatistics
from tuner.report.data import ReportData
from tuner.report.frames import trials_csv
from tuner.report.quantities import metric_text
from tuner.score.judge import SloResult, Verdict, judge, value_of
from tuner.score.point import judge_point
from tuner.spec.metrics import METRICS, SHARE, TIME, Better, Metric
from tuner.spec.slo import Objective, Slo

QUEUE = Metric("queue_time", TIME, "server.queue_us", aliases=("queue",))
HITS = Metric("cache_hits", SHARE, "server.cache_hit_rate", Better.HIGHER)
P999 = Metric("p999_latency", TIME, "p999_latency_us", quantile=0.999, aliases=("p999",))
SERVER = ServerStatistics(100, 0, 100, 50, 2_500.0, 1.0, 1.0, 1.0, cache_hit_count=25)


@pytest.fixture(autouse=True)
def _in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for metric in (QUEUE, HITS, P999):
        monkeypatch.setitem(METRICS, metric.name, metric)


@pytest.mark.parametrize(
    ("text", "metric", "bound"),
    [
        ("queue_time <= 3ms", QUEUE, 3_000),
        ("cache_hits >= 20%", HITS, 0.2),
        ("p999_latency <= 60ms", P999, 60_000),
    ],
)
def test_new_metric_is_parsed_and_in_the_schema(text: str, metric: Metric, bound: float) -> None:
    slo = Slo.parse(text)
    assert (slo.metric, slo.bound, str(slo)) == (metric, bound, text)
    assert re.search(TypeAdapter(Slo).json_schema()["pattern"], text)
    objective = f"minimize {metric.name} at 300/s"
    assert Objective.parse(objective).metric is metric
    assert re.search(TypeAdapter(Objective).json_schema()["pattern"], objective)
    with pytest.raises(ValueError, match=f"mean {QUEUE.name}"):
        Slo.parse("queue <= 3ms")


def test_new_metric_is_judged_and_read_back() -> None:
    measured = replace(synthetic_measurement(), server=SERVER)
    results = [judge(Slo.parse(t), measured) for t in ("queue_time <= 2ms", "cache_hits >= 20%")]
    assert [(r.value, r.verdict) for r in results] == [(2_500, Verdict.FAIL), (0.25, Verdict.PASS)]
    assert SloResult.from_json(results[0].to_json()) == results[0]
    assert value_of(QUEUE, synthetic_measurement()) is None


def test_new_metric_is_formatted() -> None:
    assert metric_text("queue_time", 2_500) == "2.5 ms"
    assert metric_text("cache_hits", 0.25) == "25%"
    verdict = judge(Slo.parse("queue_time <= 2ms"), replace(synthetic_measurement(), server=SERVER))
    assert "2.5 ms" in slo_text(verdict)


def test_new_metric_is_a_column_of_the_trials(made: Callable[..., ReportData]) -> None:
    header = trials_csv(made("improved")).splitlines()[0]
    assert len(header.split(",")) == len(set(header.split(",")))
    assert {"queue_us", "cache_hit_rate", "p999_latency_us"} <= set(header.split(","))


def test_p999_is_three_nines_and_ranked_from_each_request() -> None:
    """Of 10,000 requests the 10th slowest; with too few there is no verdict."""
    measured = synthetic_measurement(count=10_000)
    assert measured.latencies_us is not None
    assert P999.requests_needed == 4603
    slo = Slo.parse("p999_latency <= 60ms")
    point = judge_point([slo], measured)
    assert point.reading(P999) == measured.latencies_us[9_989]
    assert point.slo[0].verdict is Verdict.PASS
    kept = replace(point, measurement=replace(measured, latencies_us=None))
    assert kept.reading(P999) == point.reading(P999)
    few = judge(slo, synthetic_measurement(count=2_000))
    assert few.verdict is Verdict.NOT_ENOUGH_DATA
