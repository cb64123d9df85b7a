"""Reports of a synthetic run of a decoupled model."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from builders.decoupled_runs import decoupled_run
from builders.pages import text_of
from builders.runs import make_run

from tuner.record.result_schema import check
from tuner.report.data import ReportData, load
from tuner.report.frames import trials_csv


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return decoupled_run(tmp_path)


@pytest.fixture
def data(run: Path) -> ReportData:
    return load(run)


def test_result_of_a_decoupled_run_follows_the_schema(run: Path) -> None:
    assert check(json.loads((run / "result.json").read_text())) == []


def test_the_table_of_trials_has_columns_of_responses(data: ReportData) -> None:
    (row, *_) = csv.DictReader(io.StringIO(trials_csv(data)))
    assert float(row["p99_first_response_us"]) == 90e3
    assert float(row["avg_last_response_us"]) == pytest.approx(0.55 * 700e3)
    assert float(row["mean_responses"]) == 9.0


def test_model_with_one_response_has_no_figures_of_responses(tmp_path: Path) -> None:
    data = load(make_run(tmp_path / "one"))
    assert "first response" not in text_of(data)
    assert "response_us" not in trials_csv(data)
