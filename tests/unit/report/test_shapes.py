"""Reports of a synthetic run with requests of two shapes."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import click
import pytest
from builders.mixed_shapes import LONG, SHORT, shaped_run
from builders.pages import page_of, text_of
from builders.runs import make_run

from tuner.record.result_schema import check
from tuner.report.data import ReportData, load
from tuner.report.run_document import document
from tuner.report.terminal import lines_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shaped_run(tmp_path)


@pytest.fixture
def data(run: Path) -> ReportData:
    return load(run)


def test_its_result_follows_the_schema(run: Path) -> None:
    assert check(json.loads((run / "result.json").read_text())) == []


def test_every_report_tells_each_shape_of_both_configs(data: ReportData) -> None:
    terminal = click.unstyle("\n".join(lines_of(document(data))))
    rows = [line.split() for line in terminal.splitlines() if line.strip().startswith("[")]
    assert [row[0] for row in rows] == [SHORT, SHORT, LONG, LONG]
    assert "20 ms" in terminal
    assert "27/s" in terminal
    missed = "p99_latency <= 40ms missed"
    for text in (terminal, text_of(data), unescape(page_of(data).replace("<wbr>", ""))):
        assert missed in text
        assert "by shape of request" in text.lower()
        assert "nothing" in text


def test_a_run_of_one_shape_says_nothing_of_shapes(tmp_path: Path) -> None:
    assert "shape of request" not in text_of(load(make_run(tmp_path)))
