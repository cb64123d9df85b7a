"""The report of a series: an index page, Markdown, and JUnit with a case for each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.report import html, markdown
from tuner.report.blocks import Document, Items, Steps, Table, Tone, filled
from tuner.report.junit import add_case, add_output, add_problem, new_suite
from tuner.report.junit import document as junit_document
from tuner.report.listing import HEADER, Row, row_of
from tuner.report.quantities import seconds_text
from tuner.run.manifest import resume_command
from tuner.run.status import Status
from tuner.run.store import MANIFEST, Member, Series, read_series
from tuner.run.writing import write_text

_TONES = {Status.IMPROVED: Tone.GOOD, Status.KEPT: Tone.GOOD, Status.UNCONFIRMED: Tone.UNSURE}
#: JUnit's word for it.
_PROBLEMS = {
    None: "skipped",
    Status.INFEASIBLE: "failure",
    Status.UNCONFIRMED: "failure",
    Status.INTERRUPTED: "error",
    Status.FAILED: "error",
}


#: The rows of runs that have ended, which are not read again.
Known = MutableMapping[Member, Row]


def render_series(directory: Path, known: Known | None = None) -> list[Path]:
    """Renders a series from what is stored; each file replaces the old one whole."""
    series = read_series(directory)
    rows = _rows(directory, series, known)
    shown = _document(directory, series, rows)
    files = {
        "report.html": html.render(shown),
        "report.md": markdown.render(shown),
        "junit.xml": _junit(directory, series, rows),
    }
    for name, text in files.items():
        write_text(directory / name, text)
    return [directory / name for name in files]


def summary(directory: Path, known: Known | None = None) -> dict[str, Any]:
    """A series as JSON: each run with its place, its gain, and how it ended."""
    series = read_series(directory)
    runs = [{**r.to_json(), **m.to_json()} for m, r in _rows(directory, series, known)]
    return {"id": directory.resolve().name, "exit_code": series.exit_code, "runs": runs}


def document(directory: Path, known: Known | None = None) -> Document:
    """The whole report; a row leads to the report of its run."""
    series = read_series(directory)
    return _document(directory, series, _rows(directory, series, known))


def _document(directory: Path, series: Series, rows: Sequence[tuple[Member, Row]]) -> Document:
    done = sum(member.done for member in series.members)
    ends = Counter(row.status for _, row in rows)
    took_s = sum(row.took_s or 0.0 for _, row in rows)
    code = series.exit_code
    bad = code not in (0, 11) or done < len(rows)
    errors = [f"{member.name}: {member.error}" for member, _ in rows if member.error]
    again = "Go on with those that have no result"
    steps = ((again, resume_command(directory)),) if done < len(rows) else ()
    tones = tuple(_tone(member) for member in series.members)
    return Document(
        name=f"{len(rows)} specs",
        headline=", ".join(f"{count} {status}" for status, count in ends.items()),
        tone=Tone.BAD if bad else Tone.UNSURE if code else Tone.GOOD,
        kind="series",
        run_id=directory.resolve().name,
        started_at=series.created_at,
        facts=(seconds_text(took_s), f"exit code {code}"),
        blocks=filled(
            Table(HEADER, tuple(row.cells() for _, row in rows), tones=tones),
            Items("Failed", tuple(errors)),
            Steps("Next", steps),
        ),
    )


def _tone(member: Member) -> Tone:
    return Tone.PLAIN if member.status is None else _TONES.get(member.status, Tone.BAD)


def _rows(directory: Path, series: Series, known: Known | None) -> list[tuple[Member, Row]]:
    known = {} if known is None else known
    for member in series.members:
        if member.done and member not in known:
            known[member] = _row(directory, member)
    return [(m, known[m] if m in known else _row(directory, m)) for m in series.members]


def _row(directory: Path, member: Member) -> Row:
    """The run as `tune report` lists it; how it ended is told by the series."""
    run = directory.resolve().parent / member.run
    begun = bool(member.run) and (run / MANIFEST).is_file()
    row = row_of(run) if begun else Row("", model=member.name)
    status = member.status.value if member.status else "under way" if member.run else "not begun"
    change = " ".join(member.error.split()) or row.change
    return replace(row, run=member.run if begun else "", status=status, change=change)


def _junit(directory: Path, series: Series, rows: Sequence[tuple[Member, Row]]) -> str:
    facts = {"id": directory.resolve().name, "exit_code": str(series.exit_code)}
    suite = new_suite("series", facts)
    took_s = 0.0
    for member, row in rows:
        took_s += row.took_s or 0.0
        case = add_case(suite, member.name, "run", member.spec)
        if (kind := _PROBLEMS.get(member.status)) is not None:
            add_problem(case, kind, row.status, member.error or row.status)
        add_output(case, ", ".join(cell for cell in row.cells() if cell))
    return junit_document(suite, took_s, series.created_at)
