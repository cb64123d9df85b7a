"""Lists of runs, one line each: the runs in a directory, and those of a series, with its report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.record.checks import CHECK, read_check
from tuner.record.manifest import resume_command
from tuner.record.series import SERIES, Member, Series, read_series
from tuner.record.status import Status
from tuner.record.store import MANIFEST, RunStore
from tuner.report import junit
from tuner.report.blocks import Bullets, Document, Steps, Table, Tone, filled
from tuner.report.data import is_taken_back
from tuner.report.headline import TIMES
from tuner.report.quantities import seconds_text
from tuner.report.render import write_report
from tuner.report.sentence import HEADLINES
from tuner.space.words import changes_text
from tuner.spec.units import count_text, digits

HEADER = ("ended", "date", "model", "gain", "p99", "took", "change", "run")
_WORDS = {status.value: words for status, (_, words) in HEADLINES.items()}
#: The word for each status in JUnit.
_PROBLEMS = {
    None: "skipped",
    Status.INFEASIBLE: "failure",
    Status.NOT_KNOWN: "failure",
    Status.INTERRUPTED: "error",
    Status.FAILED: "error",
}


@dataclass(frozen=True)
class ListedRun:
    """A run, a check or a series in a list.

    Attributes:
        run: Name of its directory.
        status: How it ended; if it is unreadable, ``change`` says why.
        date: In UTC, to the minute.
        gain: Lower bound of the winner's gain, as in the verdict; empty without a winner.
        p99_latency_ms: At the load that the winner, or else the current config, is credited with.
        taken_back: A winner was written, and is no longer in the repository.
    """

    run: str
    status: str = "no result yet"
    date: str = ""
    model: str = ""
    gain: str = ""
    p99_latency_ms: float | None = None
    took_s: float | None = None
    change: str = ""
    taken_back: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def ended(self) -> str:
        """The status in the words of reports."""
        return _WORDS.get(self.status, self.status)

    def cells(self) -> tuple[str, ...]:
        """The columns of `HEADER`."""
        p99 = "" if self.p99_latency_ms is None else f"{self.p99_latency_ms:.3g} ms"
        took = "" if self.took_s is None else seconds_text(self.took_s)
        ended = f"{self.ended}, taken back" if self.taken_back else self.ended
        return (ended, self.date, self.model, self.gain, p99, took, self.change, self.run)


def rows_in(output: Path) -> list[ListedRun]:
    """The runs, checks and series in a directory, by id, and so by date."""
    kinds = (MANIFEST, SERIES)
    paths = [p for p in output.glob("*/") if any(os.path.lexists(p / kind) for kind in kinds)]
    return [row_of(path) for path in sorted(paths)]


def row_of(run: Path) -> ListedRun:
    """The row of a run, a check or a series, readable or not."""
    try:
        if os.path.lexists(run / CHECK):
            check = read_check(run)
            gain = "" if check.ratio is None else f"{check.ratio.estimate:.3g}x accepted"
            status, date = f"check: {check.status.value}", _minute(check.checked_at)
            return ListedRun(str(run), status, date, check.model, gain, took_s=check.seconds)
        if os.path.lexists(run / SERIES):
            series = read_series(run)
            ended = sum(member.status is not None for member in series.members)
            status = f"series: {ended} ended, exit code {series.exit_code}"
            specs = count_text(len(series.members), "spec")
            return ListedRun(str(run), status, _minute(series.created_at), specs)
        return _row_of_run(run)
    except TunerError as error:
        return ListedRun(str(run), "unreadable", change=error.message)


def _row_of_run(run: Path) -> ListedRun:
    store = RunStore.open(run)
    manifest = store.manifest()
    row = ListedRun(str(run), date=_minute(manifest.created_at), model=manifest.name)
    if (result := store.result()) is None:
        return row
    winner, side = result.winner, result.winner or result.baseline
    gain = result.gain if winner else None
    p99_us = None if side is None else side.judged.limiting.p99_latency_us
    return replace(
        row,
        status=result.status.value,
        gain="" if gain is None else f"at least {_gain_text(gain.ratio.low)}",
        p99_latency_ms=None if p99_us is None else p99_us / 1000,
        took_s=result.time.wall_s,
        change="" if winner is None else changes_text(winner.candidate, manifest.current),
        taken_back=is_taken_back(result.written),
    )


def _gain_text(ratio: float) -> str:
    """The gain over 1, as `+65%` or `17.9x`."""
    return f"{digits(ratio)}x" if ratio >= TIMES else f"{ratio - 1.0:+.0%}"


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


#: Rows of runs that have ended, which are not read again.
Known = MutableMapping[Member, ListedRun]


def render_series(directory: Path, known: Known | None = None) -> list[Path]:
    """Renders a stored series; each file is the old one or the complete new one."""
    series = read_series(directory)
    rows = _rows(directory, series, known)
    junit_xml = _junit(directory, series, rows)
    return write_report(directory, _document(directory, series, rows), junit_xml)


def summary(directory: Path, known: Known | None = None) -> dict[str, Any]:
    """A series as JSON: each run with its directory, its gain, and how it ended."""
    series = read_series(directory)
    runs = [{**r.to_json(), **m.to_json()} for m, r in _rows(directory, series, known)]
    return {"id": directory.resolve().name, "exit_code": series.exit_code, "runs": runs}


def document(directory: Path, known: Known | None = None) -> Document:
    """The whole report; each row links to the report of its run."""
    series = read_series(directory)
    return _document(directory, series, _rows(directory, series, known))


def _document(
    directory: Path, series: Series, rows: Sequence[tuple[Member, ListedRun]]
) -> Document:
    done = sum(member.done for member in series.members)
    ends = Counter(row.ended for _, row in rows)
    took_s = sum(row.took_s or 0.0 for _, row in rows)
    code = series.exit_code
    bad = code not in (0, 11) or done < len(rows)
    errors = [f"{member.name}: {member.error}" for member, _ in rows if member.error]
    again = "Continue with the runs that have no result"
    left = [member.spec for member in series.members if not member.done]
    steps = ((again, resume_command(directory, left, series.choices)),) if left else ()
    tones = tuple(HEADLINES[m.status][0] if m.status else Tone.PLAIN for m, _ in rows)
    return Document(
        name=count_text(len(rows), "spec"),
        headline=", ".join(f"{count} {status}" for status, count in ends.items()),
        tone=Tone.BAD if bad else Tone.UNSURE if code else Tone.GOOD,
        kind="series",
        run_id=directory.resolve().name,
        started_at=series.created_at,
        facts=(seconds_text(took_s), f"exit code {code}"),
        blocks=filled(
            Table(HEADER, tuple(row.cells() for _, row in rows), tones=tones),
            Bullets("Failed", tuple(errors)),
            Steps("Next", steps),
        ),
    )


def _rows(directory: Path, series: Series, known: Known | None) -> list[tuple[Member, ListedRun]]:
    known = {} if known is None else known
    for member in series.members:
        if member.done and member not in known:
            known[member] = _row(directory, member)
    return [(m, known[m] if m in known else _row(directory, m)) for m in series.members]


def _row(directory: Path, member: Member) -> ListedRun:
    """The run as `tune report` lists it; the series has its status."""
    run = directory.resolve().parent / member.run
    begun = bool(member.run) and (run / MANIFEST).is_file()
    row = row_of(run) if begun else ListedRun("", model=member.name)
    status = member.status.value if member.status else "under way" if member.run else "not begun"
    change = " ".join(member.error.split()) or row.change
    return replace(row, run=member.run if begun else "", status=status, change=change)


def _junit(directory: Path, series: Series, rows: Sequence[tuple[Member, ListedRun]]) -> str:
    facts = {"id": directory.resolve().name, "exit_code": str(series.exit_code)}
    cases = []
    for member, row in rows:
        kind, text = _PROBLEMS.get(member.status), ", ".join(filter(None, row.cells()))
        problem = None if kind is None else (kind, row.status, member.error or row.status)
        cases.append(junit.case(member.name, "run", member.spec, problem, text))
    took_s = sum(row.took_s or 0.0 for _, row in rows)
    return junit.document("series", facts, cases, took_s, series.created_at)
