"""The list of runs, and the report of a series."""

from __future__ import annotations

from pathlib import Path

from builders.runs import Toy, make_run
from builders.series import ended_series

from tuner.report.blocks import Table, Tone
from tuner.report.data import load
from tuner.report.headline import gain_sentence
from tuner.report.listing import document, row_of


def test_an_interrupted_run_is_no_failure_in_its_series(tmp_path: Path) -> None:
    (table,) = (b for b in document(ended_series(tmp_path)).blocks if isinstance(b, Table))
    assert table.tones == (Tone.GOOD, Tone.UNSURE)


def test_list_has_the_gain_of_the_verdict_and_the_p99_of_the_credited_load(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=14))
    row, data = row_of(run), load(run)
    least = row.gain.removeprefix("at least ").removesuffix("x")
    assert f"at least {least}" in gain_sentence(data).lower()
    winner = data.result.winner
    assert winner is not None
    assert row.p99_latency_ms == winner.judged.measurement.p99_latency_us / 1000


def test_list_has_the_words_of_the_reports(tmp_path: Path) -> None:
    ended = {
        row_of(make_run(tmp_path, Toy(trials=14), how)).ended for how in ("kept", "infeasible")
    }
    assert ended == {"Kept", "No config meets the SLOs"}
