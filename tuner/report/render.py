"""Writes every form of the report of a run beside its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.report import html, junit, markdown, trials_csv
from tuner.report.blocks import Document
from tuner.report.data import ReportData, load
from tuner.report.pull_request import write_proposal
from tuner.report.run_document import document
from tuner.run.writing import write_text

#: File of a run to the function that makes its text.
FORMATS: dict[str, Callable[[ReportData, Document], str]] = {
    "report.html": lambda _, document: html.render(document),
    "report.md": lambda _, document: markdown.render(document),
    "junit.xml": lambda data, _: junit.render(data),
    "trials.csv": lambda data, _: trials_csv.render(data),
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
