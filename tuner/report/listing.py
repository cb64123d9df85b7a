"""All runs and checks in a directory, a line each: when, of what, how it ended, what was gained."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.report.data import read_result
from tuner.report.quantities import seconds_text
from tuner.report.tiles import TIMES, gain_texts
from tuner.run.checks import CHECK, CheckFacts, read_check
from tuner.run.manifest import Manifest
from tuner.run.result_schema import Result
from tuner.run.store import MANIFEST, RunStore
from tuner.space.words import changes_text

HEADER = ("ended", "date", "model", "gain", "p99", "took", "change", "run")


@dataclass(frozen=True)
class Row:
    """A run or a check.

    Attributes:
        status: How it ended; of one that is unreadable, ``change`` says why.
        date: In UTC, to the minute.
        gain: Of the winner over the current config; empty without one.
    """

    run: str
    status: str = "no result yet"
    date: str = ""
    model: str = ""
    gain: str = ""
    p99_latency_ms: float | None = None
    took_s: float | None = None
    change: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """The columns of `HEADER`."""
        p99 = "" if self.p99_latency_ms is None else f"{self.p99_latency_ms:.3g} ms"
        took = "" if self.took_s is None else seconds_text(self.took_s)
        return (self.status, self.date, self.model, self.gain, p99, took, self.change, self.run)


def rows_in(output: Path) -> list[Row]:
    """The runs and checks in a directory, by their ids, and so by date."""
    return [row_of(run) for run in sorted(output.glob("*/")) if os.path.lexists(run / MANIFEST)]


def row_of(run: Path) -> Row:
    """What is known of a run or a check, readable or not."""
    try:
        if os.path.lexists(run / CHECK):
            return _checked(run, read_check(run))
        store = RunStore.open(run)
        manifest = store.manifest()
        row = Row(str(run), date=_minute(manifest.created_at), model=manifest.name)
        result = read_result(store)
        return row if result is None else _ended(row, manifest, result)
    except TunerError as error:
        return Row(str(run), "unreadable", change=error.message)


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _checked(run: Path, check: CheckFacts) -> Row:
    gain = "" if check.ratio is None else f"{check.ratio.estimate:.3g}x accepted"
    status, date = f"check: {check.status.value}", _minute(check.checked_at)
    return Row(str(run), status, date, check.model, gain, took_s=check.seconds)


def _ended(row: Row, manifest: Manifest, result: Result) -> Row:
    gain, winner, side = result.improvement, result.winner, result.winner or result.baseline
    p99_us = None if side is None else side.p99_latency_us
    change = ""
    if winner is not None:
        change = changes_text(winner.candidate, manifest.current)
    return Row(
        row.run,
        result.status.value,
        row.date,
        row.model,
        "" if gain is None else gain_texts(gain, TIMES)[0],
        None if p99_us is None else p99_us / 1000,
        result.time.wall_s,
        change,
    )
