"""The loads around the credited one: chart, table and sentence on the page and in report.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.report.test_soak import soaked_run

from tuner.report import html, markdown
from tuner.report.charts.load_curve import load_curve
from tuner.report.data import ReportData, load
from tuner.run.confirmation import CurvePoint, LoadCurve

CURVE = LoadCurve(
    "p99_latency",
    tuple(
        CurvePoint(share, 2180 * share, round(10_900 * share), 8e3, used * 40e3, late, used)
        for share, used, late in ((0.9, 0.5, 0.0), (1.0, 0.8, 0.001), (1.05, 1.6, None))
    ),
    ("70 and 80 (no export)",),
)
SAID = "at 2180/s its p99_latency is still within 80 % of the SLO"


def shown(directory: Path, curve: LoadCurve, role: str = "winner") -> ReportData:
    run, _ = soaked_run(directory, 0.9, role)
    path = run / "result.json"
    result = json.loads(path.read_text())
    result[role]["soak"]["curve"] = curve.to_json()
    path.write_text(json.dumps(result))
    return load(run)


@pytest.mark.parametrize("role", ["winner", "baseline"])
def test_it_is_drawn_with_the_bound_and_told_on_the_page_and_in_markdown(
    tmp_path: Path, role: str
) -> None:
    data = shown(tmp_path, CURVE, role)
    chart = load_curve(data)
    assert chart is not None
    p99, p50 = chart.figure["data"]
    assert (p99["name"], p50["name"]) == ("p99", "p50")
    assert p99["x"] == p50["x"] == pytest.approx([1962.0, 2180.0, 2289.0])
    assert p99["y"] == pytest.approx([20.0, 32.0, 64.0])
    assert p50["y"] == pytest.approx([8.0] * 3)
    assert [s["y0"] for s in chart.figure["layout"]["shapes"]] == [40.0]
    row = ("100 %", "2,180/s", "8 ms", "32 ms", "0.1 %", "10,900")
    assert chart.table.rows[1] == row
    assert chart.table.rows[2][4] == "-"
    page, text = html.render(data), markdown.render(data)
    assert 'id="load-curve"' in page
    assert "| " + " | ".join(row) + " |" in text
    for told in (page, text):
        assert f"A{SAID[1:]}; left out: 70 and 80 (no export)." in told


def test_the_highest_load_with_room_is_the_one_below_the_first_without() -> None:
    p90, p100, p105 = CURVE.points
    assert LoadCurve("p99_latency", (p105, p90, p100)).sentence.endswith(
        "is not within 80 % of the SLO any more"
    )
    assert LoadCurve("p99_latency", (p90, p105, p100)).sentence.startswith("at 1962/s")


def test_where_every_load_was_left_out_the_reason_is_told_and_nothing_is_drawn(
    tmp_path: Path,
) -> None:
    data = shown(tmp_path, LoadCurve("p99_latency", (), ("0.7/s (5 s are too short)",)))
    assert load_curve(data) is None
    for told in (html.render(data), markdown.render(data)):
        assert "Load curve: left out: 0.7/s (5 s are too short)." in told
