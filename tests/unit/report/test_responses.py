"""Reports of a synthetic run of a decoupled model."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from builders.checks import facts
from builders.decoupled_runs import decoupled_run
from builders.pages import page_of, terminal_of, text_of
from builders.runs import make_run

from tuner.record.responses import responses_of
from tuner.record.result_schema import check
from tuner.report.check_document import document as check_document
from tuner.report.data import ReportData, load
from tuner.report.frames import trials_csv
from tuner.report.run_document import document


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return decoupled_run(tmp_path)


@pytest.fixture
def data(run: Path) -> ReportData:
    return load(run)


def test_its_result_follows_the_schema(run: Path) -> None:
    assert check(json.loads((run / "result.json").read_text())) == []


def test_every_report_tells_first_and_last_responses_of_both_configs(data: ReportData) -> None:
    terminal = terminal_of(document(data))
    for text in (terminal, text_of(data), page_of(data)):
        for figure in ("150 ms", "900 ms", "90 ms", "700 ms", "9 (3 to 9)"):
            assert figure in text
    now, then = [row for row in text_of(data).splitlines() if row.startswith("| all requests")]
    assert now.split("|")[-3:-1] == [" 2 ", " 0 "]  # not completed, answered again
    assert then.split("|")[-4:-1] == [" 9 ", " 0 ", " 0 "]
    assert "| p99 first response | 150 ms | 90 ms |" in text_of(data)


def test_the_table_of_trials_has_columns_of_responses(data: ReportData) -> None:
    (row, *_) = csv.DictReader(io.StringIO(trials_csv(data)))
    assert float(row["p99_first_response_us"]) == 90e3
    assert float(row["avg_last_response_us"]) == pytest.approx(0.55 * 700e3)
    assert float(row["mean_responses"]) == 9.0


def test_a_check_tells_them_in_its_report(data: ReportData) -> None:
    assert data.current is not None
    own = [asdict(found) for found in responses_of(data.current.judged.measurement)]
    shown = terminal_of(check_document(facts(responses=own)))
    (row,) = (line.split() for line in shown.splitlines() if "all requests" in line)
    assert row[-2:] == ["2", "0"]  # not completed, answered again
    assert "until the last response" in shown
    assert "config" not in shown[shown.index("first response") - 20 : shown.index("first response")]


def test_a_model_that_answers_once_has_no_responses_told(tmp_path: Path) -> None:
    data = load(make_run(tmp_path / "one"))
    assert "first response" not in text_of(data)
    assert "response_us" not in trials_csv(data)
