"""The overload in the report: chart, table and sentences, also where there was none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.report.conftest import Made

from tuner.report import html, markdown
from tuner.report.charts.overload import over_time
from tuner.run.result_schema import Overloads


def test_both_configs_are_drawn_over_time_with_the_slo_and_the_overload_shaded(made: Made) -> None:
    chart = over_time(made("improved"))
    assert chart is not None
    assert [trace["name"] for trace in chart.figure["data"]] == ["current config", "best config"]
    (current, best) = (trace["y"] for trace in chart.figure["data"])
    assert (max(current), max(best)) == (pytest.approx(1172.0), pytest.approx(422.0))
    assert (current[-1], best[-1]) == (max(current), pytest.approx(22.0))
    line, shade = chart.figure["layout"]["shapes"]
    assert (line["y0"], line["y1"]) == (40.0, 40.0)
    assert (shade["x0"], shade["x1"]) == (0, 2.0)
    words = [a["text"] for a in chart.figure["layout"]["annotations"]]
    assert words == ["p99_latency &lt;= 40ms", "overload"]


def test_the_table_has_every_slice(made: Made) -> None:
    chart = over_time(made("improved"))
    assert chart is not None
    assert len(chart.table.rows) == 2 * 28
    assert chart.table.rows[0] == ("current config", "-1.00 s", "88/s", "88/s", "0/s", "22 ms")


def test_a_slice_without_requests_is_not_drawn(made: Made) -> None:
    data = made("kept")
    assert data.overload is not None
    assert data.overload.current is not None
    probe = data.overload.current
    first, *others = probe.slices
    empty = replace(probe, slices=(replace(first, due_per_s=0.0, p99_latency_us=None), *others))
    chart = over_time(replace(data, overload=Overloads(current=empty, winner=None)))
    assert chart is not None
    assert len(chart.figure["data"][0]["x"]) == len(probe.slices) - 1
    assert len(chart.table.rows) == len(probe.slices)


def test_the_sentences_are_in_both_reports(made: Made) -> None:
    data = made("improved")
    for text in (html.render(data), markdown.render(data)):
        assert "Overload and recovery" in text
        assert "Current config: asked for 132/s for 2 s, 120 % of what it sustained" in text
        assert "4 s later it was not yet within" in text
        assert "Best config: asked for 2460/s" in text
        assert "again 1 s after the overload ended." in text


def test_a_run_that_did_not_come_to_it_has_no_section(made: Made) -> None:
    data = made("failed")
    assert data.overload is None
    assert "Overload" not in html.render(data).split("<main>")[0]
    assert "Overload" not in markdown.render(data)
