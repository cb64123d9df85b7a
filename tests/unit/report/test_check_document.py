from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from builders.checks import SLO, facts, nights, row

from tuner.record.checks import json_schema
from tuner.record.status import CheckStatus
from tuner.report.check_document import (
    document,
    junit_of,
    next_steps,
    render_check,
    trend,
    trend_chart,
)

ROOT = Path(__file__).parents[3]


def test_the_published_schema_is_the_one_in_the_code() -> None:
    """Else: write `tuner.record.checks.json_schema()` to docs/schemas/check.schema.json."""
    published = ROOT / "docs" / "schemas" / "check.schema.json"
    assert json.loads(published.read_text()) == json_schema()


@pytest.mark.parametrize(
    "changes",
    [
        {"slo": [{"worst": {**SLO, "verdict": "fail"}, "values": [41_000.0]}]},
        {"slo": [{"worst": {**SLO, "verdict": "not enough data"}, "values": [38_000.0]}]},
        {"values": []},
    ],
)
def test_next_steps_offer_no_baseline_that_would_be_refused(changes: dict[str, object]) -> None:
    open_ = facts(CheckStatus.INCONCLUSIVE, baseline=None, ratio=None, **changes)
    assert "--update-baseline" not in str(next_steps(open_))


def test_a_result_at_another_load_may_be_accepted() -> None:
    elsewhere = facts(CheckStatus.INCONCLUSIVE, ratio=None)
    assert "--update-baseline" in str(next_steps(elsewhere))


def test_a_config_that_was_not_served_missed_no_slo() -> None:
    refused = facts(CheckStatus.MISSED, rounds=0, slo=[], values=[])
    assert document(refused).headline == "the server does not load the config"
    assert document(facts(CheckStatus.MISSED)).headline == "an SLO is missed"


def test_one_check_is_no_trend() -> None:
    assert trend(facts(history=[row(1)])) is None


def test_the_chart_holds_each_check_against_what_was_accepted_then() -> None:
    chart = trend_chart(facts(history=nights()))
    assert chart is not None
    traces = {t["name"]: t for t in chart.figure["data"]}
    assert traces["accepted result"]["y"][::2] == pytest.approx([2000.0] * 7 + [1820.0] * 3)
    assert chart.figure["data"][1]["y"][0] == pytest.approx(1900.0)
    assert traces["passed"]["x"] == [0, 1, 2, 4, 6, 7, 8]
    assert traces["inconclusive"]["x"] == [3]
    assert traces["did not pass"]["x"] == [5, 9]
    bars = traces["inconclusive"]["error_y"]
    assert (*bars["array"], *bars["arrayminus"]) == pytest.approx((100.0, 100.0))
    assert len(chart.table.rows) == 10


def test_where_less_is_better_a_loss_lies_above() -> None:
    history = [
        row(1) | {"status": "accepted", "value": 30_000.0},
        row(2, {"estimate": 0.75, "low": 0.6, "high": 0.8}) | {"value": 40_000.0},
    ]
    chart = trend_chart(facts(compared="p99_latency", history=history))
    assert chart is not None
    traces = {t["name"]: t for t in chart.figure["data"]}
    assert traces["accepted result"]["y"] == pytest.approx([30.0] * 4)
    assert chart.figure["data"][1]["y"] == pytest.approx([30 / 0.95] * 4)
    bars = traces["passed"]["error_y"]
    assert (bars["array"][1], bars["arrayminus"][1]) == pytest.approx((10.0, 2.5))
    assert chart.figure["layout"]["yaxis"]["title"]["text"] == "p99_latency (ms)"


def test_the_chart_is_valid_for_plotly() -> None:
    from plotly import graph_objects

    chart = trend_chart(facts(history=nights()))
    assert chart is not None
    graph_objects.Figure(chart.figure)  # raises on an unknown or wrong property


def test_checks_that_were_not_measured_are_in_the_table_only() -> None:
    unknown = row(2) | {"value": None, "status": "slo missed"}
    assert trend_chart(facts(history=[row(1), unknown])) is None
    chart = trend_chart(facts(history=[row(1), unknown, row(3)]))
    assert chart is not None
    assert len(chart.table.rows) == 3
    assert [t["x"] for t in chart.figure["data"]] == [[0, 1]]


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (CheckStatus.FINE, None),
        (CheckStatus.WORSE, None),
        (CheckStatus.REGRESSION, "failure"),
        (CheckStatus.INCONCLUSIVE, "failure"),
        (CheckStatus.FAILED, "error"),
        (CheckStatus.MISSED, "skipped"),
    ],
)
def test_junit_has_a_case_for_the_regression(status: CheckStatus, problem: str | None) -> None:
    suite = ET.fromstring(junit_of(facts(status)))[0]
    assert suite.attrib["tests"] == "2"
    (case,) = (c for c in suite.findall("testcase") if c.attrib["name"] == "regression")
    assert [c.tag for c in case if c.tag != "system-out"] == ([problem] if problem else [])


def test_stored_check_is_rendered_to_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "check.json").write_text(facts().model_dump_json())
    first = [p.read_bytes() for p in render_check(tmp_path)]
    assert [p.read_bytes() for p in render_check(tmp_path)] == first
