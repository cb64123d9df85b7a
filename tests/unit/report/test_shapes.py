"""Reports of a synthetic run, and of a check, with requests of two shapes."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from builders.checks import facts
from builders.mixed_shapes import LONG, SHORT, mixed_point, shaped_run
from builders.pages import terminal_of, text_of
from builders.runs import make_run

from tuner.record.result_schema import check
from tuner.record.shapes import shapes_of
from tuner.report import run_document
from tuner.report.check_document import document as check_document
from tuner.report.check_document import junit_of
from tuner.report.data import ReportData, load
from tuner.report.frames import trials_csv


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shaped_run(tmp_path)


@pytest.fixture
def data(run: Path) -> ReportData:
    return load(run)


def test_result_of_mixed_shapes_follows_the_schema(run: Path) -> None:
    assert check(json.loads((run / "result.json").read_text())) == []


def test_a_run_of_one_shape_says_nothing_of_shapes(tmp_path: Path) -> None:
    assert "shape of request" not in text_of(load(make_run(tmp_path)))


def test_the_table_of_trials_has_the_figures_of_each_shape(data: ReportData) -> None:
    trial = data.trials[1]
    [load] = trial.points[:1]
    shaped = replace(trial, points=(mixed_point("m", 1, level=load.level),))
    row = next(csv.DictReader(StringIO(trials_csv(replace(data, trials=[shaped])))))
    assert float(row["shape.[64].p99_latency_us"]) == 20e3
    assert float(row["shape.[256].goodput_infer_per_s"]) == pytest.approx(0.9 * 0.3 * load.level)


def test_junit_has_the_p99_of_each_shape_as_a_property(data: ReportData) -> None:
    suite = ET.fromstring(run_document.junit_of(data))
    values = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert values["p99_latency_us [64]"] == "20000"
    assert values["p99_latency_us [256]"] == "50000"


def test_a_check_tells_each_shape_in_its_report_and_in_junit() -> None:
    shapes = [asdict(shape) for shape in shapes_of(mixed_point("m", 1))]
    check = facts(shapes=shapes)
    terminal = terminal_of(check_document(check))
    rows = [line.split() for line in terminal.splitlines() if line.strip().startswith("[")]
    assert [row[0] for row in rows] == [SHORT, LONG]
    assert "batched with" not in terminal
    assert 'name="p99_latency_us [64]" value="20000"' in junit_of(check)
