"""What single charts show, beyond being drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.pages import Made

from tuner.report.charts import EDGE, latency_layout
from tuner.report.charts.load import load_charts
from tuner.report.charts.request import parts_us
from tuner.report.charts.trials import front, history
from tuner.report.data import load
from tuner.score.judge import SloResult, Verdict
from tuner.space.words import changes_text

BOUND = SloResult("p99_latency <= 40ms", "p99_latency", 40e3, 38e3, Verdict.PASS, 0.05)


def trace(chart: Any, name: str) -> dict[str, Any]:
    return next(t for t in chart.figure["data"] if t["name"] == name)


def test_the_picture_has_the_rounds_of_both_configs_their_search_and_the_bound(made: Made) -> None:
    data = made()
    (chart,) = load_charts(data)
    for name, side in (("current config", data.current), ("best config", data.best)):
        assert side is not None
        assert len(trace(chart, f"{name}, rounds")["x"]) == 3
        series = trace(chart, f"{name}, search")
        assert series["x"] == [p.level for p in data.trial_of(side).points]  # type: ignore[union-attr]
        assert series["opacity"] < 1.0
    bound, credit = chart.figure["layout"]["shapes"]
    assert bound["y0"] == bound["y1"] == 40.0
    assert data.best is not None
    assert credit["x0"] == credit["x1"] == data.best.credited_infer_per_s
    (_, label) = chart.figure["layout"]["annotations"]
    assert label["text"].startswith("credited: ")
    assert {row[1] for row in chart.table.rows} == {"search", "round 1", "round 2", "round 3"}


def test_points_far_beyond_the_bound_are_drawn_at_the_edge(made: Made) -> None:
    (chart,) = load_charts(made())
    assert "at the upper edge" in chart.note
    ys = [y for t in chart.figure["data"] for y in t["y"]]
    assert max(ys) == 40.0 * EDGE


def test_where_nearly_all_is_beyond_the_bound_nothing_is_at_the_edge() -> None:
    layout, edge = latency_layout("load", "p99 (ms)", [900.0, 1000.0, 30.0], [BOUND])
    assert edge == float("inf")
    assert layout["yaxis"]["type"] == "log"
    layout, edge = latency_layout("load", "p99 (ms)", [20.0, 30.0, 300.0], [BOUND])
    assert (edge, layout["yaxis"]["range"]) == (80.0, [0, pytest.approx(84.8)])


def test_points_that_met_the_slos_are_filled_and_those_that_missed_one_hollow(made: Made) -> None:
    data = made()
    assert data.best is not None
    (chart,) = load_charts(data)
    series = trace(chart, "best config, search")
    met = [p.passed for p in data.trial_of(data.best).points]  # type: ignore[union-attr]
    assert {*met} == {True, False}
    assert [not symbol.endswith("-open") for symbol in series["marker"]["symbol"]] == met


ENSEMBLE = load(Path(__file__).parents[2] / "runs" / "ensemble")


@pytest.mark.parametrize("queue_us", [0.0, 500.0, 20e3])
@pytest.mark.parametrize("network_us", [0.0, 200.0, 30e3, None])
def test_the_average_request_of_any_ensemble_sums_to_its_average(
    queue_us: float, network_us: float | None
) -> None:
    """Its network is the rest of its latency, so that its steps' queues are a part of that."""
    assert ENSEMBLE.best is not None
    point = ENSEMBLE.best.judged
    models = {n: replace(s, queue_us=queue_us) for n, s in point.measurement.models.items()}
    measured = replace(
        point.measurement, network_us=network_us, models=models, server=models["nlp"]
    )
    parts = parts_us(ENSEMBLE, replace(point, measurement=measured))
    assert sum(parts.values()) == pytest.approx(measured.avg_latency_us)
    assert min(parts.values()) >= 0.0
    assert "queue" in parts


def test_every_trial_with_a_measurement_has_a_point_with_its_change(made: Made) -> None:
    data = made()
    chart = front(data)
    assert chart is not None
    assert data.current is not None
    series = [t for t in chart.figure["data"] if "customdata" in t]
    texts = {n: text for t in series for n, text in zip(t["customdata"], t["text"], strict=True)}
    measured = [t for t in data.trials if t.points]
    assert sorted(texts) == [t.number for t in measured]
    for trial in measured:
        assert changes_text(trial.candidate, data.current.candidate) in texts[trial.number]


def test_current_and_best_are_ringed_where_they_are_judged(made: Made) -> None:
    data = made()
    chart = front(data)
    assert chart is not None
    for name, side in (("current config", data.current), ("best config", data.best)):
        assert side is not None
        assert trace(chart, name)["x"] == [side.judged.measurement.throughput_infer_per_s]


def test_a_front_of_one_point_is_no_line(made: Made) -> None:
    data = made(trials=1)
    chart = front(data)
    assert chart is not None
    assert "Pareto front" not in [t["name"] for t in chart.figure["data"]]


def test_the_history_has_failures_on_its_axis_and_the_best_to_the_end(made: Made) -> None:
    data = made()
    chart = history(data)
    assert chart is not None
    failed = trace(chart, "failed")
    assert failed["customdata"] == [t.number for t in data.failed]
    assert set(failed["y"]) == {0.0}
    assert trace(chart, "best so far")["x"][-1] == data.trials[-1].number


def test_load_of_a_config_that_was_not_proved_is_not_called_credited(made: Made) -> None:
    data = made("killed")
    assert data.best is not None
    assert data.best.from_search
    chart = load_charts(data)[0]
    texts = [note["text"] for note in chart.figure["layout"]["annotations"]]
    assert any(text.startswith("measured once: ") for text in texts)
    assert not any(text.startswith("credited") for text in texts)
