"""A run as tables for notebooks."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas as pd
import pytest
from builders.runs import Toy, make_run

import tuner
from tuner.report.data import load
from tuner.report.frames import trials_csv

PAGE = Path(__file__).parents[3] / "docs" / "results.md"


def test_the_example_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall("```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    run = make_run(tmp_path, Toy(trials=12))
    exec(re.sub(r'"results/[^"]*"', repr(str(run)), example), {})
    printed = capsys.readouterr().out
    assert "p99_latency_us" in printed
    assert "round" in printed


def test_each_trial_load_and_measurement_of_the_confirmation_is_a_row(tmp_path: Path) -> None:
    frames = tuner.read_run(make_run(tmp_path, Toy(trials=12)))
    assert list(frames.trials["trial"]) == list(range(12))
    assert frames.points.groupby("trial").size().to_dict() == {
        row.trial: row.loads_measured for row in frames.trials.itertuples() if row.loads_measured
    }
    assert list(frames.rounds["role"]) == ["current", "candidate"] * 3
    assert set(frames.rounds["candidate_key"]) <= set(frames.trials["candidate_key"])
    best = frames.trials.loc[frames.trials["score"].astype(float).idxmax()]
    assert best["p99_latency_us"] < 40_000


@pytest.mark.filterwarnings("ignore:The 'float_precision' argument")  # pandas 3: soon the default
def test_the_table_of_trials_is_the_csv(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=12))
    table = tuner.read_run(run).trials.drop(columns="candidate_key")
    text = pd.read_csv(io.StringIO(trials_csv(load(run))), float_precision="round_trip")
    assert list(table) == list(text)
    assert table["score"].astype(float).equals(text["score"].astype(float))


def test_a_run_that_measured_nothing_yet_has_empty_tables(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=12), "killed")
    (run / "trials.jsonl").unlink()
    frames = tuner.read_run(run)
    assert (len(frames.trials), len(frames.points), len(frames.rounds)) == (0, 0, 0)
