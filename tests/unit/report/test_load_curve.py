"""The loads around the credited one: chart, table and sentence on the page and in report.md."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from unit.report.synthetic import CURRENT, Toy, measure
from unit.report.test_soak import LATE, soaked_run

from tuner.report import html, markdown
from tuner.report.charts.load_curve import load_curve
from tuner.report.data import ReportData, load
from tuner.run.confirmation import LoadCurve, Soaked
from tuner.score.point import judge_point


def at(level: float, p99_ms: float) -> Soaked:
    made = replace(measure(CURRENT, level, 1), p50_latency_us=8e3, p99_latency_us=1e3 * p99_ms)
    return Soaked(made, judge_point(Toy().slos, made).slo, LATE)


def shown(directory: Path, *points: Soaked) -> ReportData:
    run, _ = soaked_run(directory, 0.9)
    result = json.loads((run / "result.json").read_text())
    curve = LoadCurve("p99_latency", points, ("80/s (no export)",))
    result["winner"]["soak"]["curve"] = curve.to_json()
    (run / "result.json").write_text(json.dumps(result))
    return load(run)


def test_it_is_drawn_with_the_bound_and_told_on_the_page_and_in_markdown(tmp_path: Path) -> None:
    data = shown(tmp_path, at(70.0, 20.0), at(90.0, 32.0), at(100.0, 64.0))
    chart = load_curve(data)
    assert chart is not None
    p99, p50 = chart.figure["data"]
    assert (p99["name"], p99["x"], p99["y"]) == ("p99", [70.0, 90.0, 100.0], [20.0, 32.0, 64.0])
    assert (p50["name"], p50["y"]) == ("p50", pytest.approx([8.0] * 3))
    assert [s["y0"] for s in chart.figure["layout"]["shapes"]] == [40.0]
    assert chart.table.rows[1][1:5] == ("90/s", "8 ms", "32 ms", "0.6 %")
    page, text = html.render(data), markdown.render(data)
    assert 'id="load-curve"' in page
    assert " | 90/s | 8 ms | 32 ms | 0.6 % | " in text
    said = "At 90/s its p99_latency is still within 80 % of the SLO; left out: 80/s (no export)."
    assert said in page
    assert said in text


def test_a_load_with_room_counts_only_below_the_first_without() -> None:
    low, high, higher = at(70.0, 40.0), at(90.0, 32.0), at(100.0, 64.0)
    assert LoadCurve("p99_latency", (low, high, higher)).sentence == (
        "at 70/s its p99_latency is not within 80 % of the SLO"
    )


def test_where_every_load_was_left_out_the_reason_is_told(tmp_path: Path) -> None:
    data = shown(tmp_path)
    assert load_curve(data) is None
    for told in (html.render(data), markdown.render(data)):
        assert "Load curve: left out: 80/s (no export)." in told
