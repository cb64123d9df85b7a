"""The list of runs, and the report of a series."""

from __future__ import annotations

from pathlib import Path

from builders.series import ended_series

from tuner.report.blocks import Table, Tone
from tuner.report.listing import document


def test_an_interrupted_run_is_no_failure_in_its_series(tmp_path: Path) -> None:
    (table,) = (b for b in document(ended_series(tmp_path)).blocks if isinstance(b, Table))
    assert table.tones == (Tone.GOOD, Tone.UNSURE)
