"""Writes every form of the report of a run beside its data."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner.plain import plain
from tuner.report import html, junit, markdown
from tuner.report.blocks import Document
from tuner.report.data import ReportData, load
from tuner.report.frames import trials_frame
from tuner.report.pull_request import write_proposal
from tuner.report.run_document import document
from tuner.run.writing import write_text

#: File of a run to the function that makes its text.
FORMATS: dict[str, Callable[[ReportData, Document], str]] = {
    "report.html": lambda _, document: html.render(document),
    "report.md": lambda _, document: markdown.render(document),
    "junit.xml": lambda data, _: junit.render(data),
    "trials.csv": lambda data, _: trials_csv(data),
}


def report_run(run_dir: Path) -> list[Path]:
    """`render_all`, and what a run with a winner proposes."""
    return [*render_all(run_dir), *write_proposal(run_dir)]


def render_all(run_dir: Path) -> list[Path]:
    """Renders a run from what is stored, finished or not; each file replaces the old one whole.

    Raises:
        SpecError: The directory holds no run.
        TunerError: A file of the run cannot be read.
    """
    data = load(run_dir)
    shown = document(data)
    for name, render in FORMATS.items():
        write_text(run_dir / name, render(data, shown))
    return [run_dir / name for name in FORMATS]


def trials_csv(data: ReportData) -> str:
    """One header line and one line per trial; a missing value is an empty cell."""
    text = io.StringIO()
    frame = trials_frame(data.trials)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, frame.columns))
    writer.writerows(map(_cell, row) for row in frame.itertuples(index=False))
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets a quote in front."""
    if not isinstance(value, str):
        return value
    shown = plain(value)
    return f"'{shown}" if shown.lstrip().startswith(("=", "+", "-", "@", "\\")) else shown
