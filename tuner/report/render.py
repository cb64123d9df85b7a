"""Writes every form of the report of a run beside its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.report import html, junit, markdown, trials_csv
from tuner.report.data import ReportData, load
from tuner.run.store import write_text

#: File of a run to the function that makes its text.
FORMATS: dict[str, Callable[[ReportData], str]] = {
    "report.html": html.render,
    "report.md": markdown.render,
    "junit.xml": junit.render,
    "trials.csv": trials_csv.render,
}


def render_all(run_dir: Path) -> list[Path]:
    """Renders a run from what is stored, finished or not; each file replaces the old one whole.

    Raises:
        SpecError: The directory holds no run.
        TunerError: A file of the run cannot be read.
    """
    data = load(run_dir)
    paths = []
    for name, render in FORMATS.items():
        write_text(run_dir / name, render(data))
        paths.append(run_dir / name)
    return paths
