"""The list of runs, and the report of a series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders.runs import Toy, make_run

from tuner.record.manifest import Choices
from tuner.record.status import Status
from tuner.record.store import Member, Series, write_series
from tuner.report.blocks import Table, Tone
from tuner.report.listing import document, rows_in


def series_of(directory: Path) -> Path:
    """A run that improved and one that was interrupted."""
    ends = (Status.IMPROVED, Status.INTERRUPTED)
    runs = [make_run(directory, Toy(trials=3), status.value).name for status in ends]
    members = [
        Member("toy.yaml", "toy", run, status) for run, status in zip(runs, ends, strict=True)
    ]
    members[1] = replace(members[1], exit_code=130)
    series = Series("2025-03-01T09:00:00+00:00", Choices(), None, tuple(members))
    write_series(directory / "20250301-090000-series", series)
    return directory / "20250301-090000-series"


def test_an_interrupted_run_is_no_failure_in_its_series(tmp_path: Path) -> None:
    (table,) = (b for b in document(series_of(tmp_path)).blocks if isinstance(b, Table))
    assert table.tones == (Tone.GOOD, Tone.UNSURE)


def test_a_series_is_listed_beside_its_runs(tmp_path: Path) -> None:
    found = series_of(tmp_path)
    first, *runs = rows_in(tmp_path)
    assert (first.run, first.status, first.model) == (
        str(found), "series: 2 ended, exit code 130", "2 specs"
    )  # fmt: skip
    assert [row.status for row in runs] == ["improved", "interrupted"]
