"""Writes every form of the report of a run beside its data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.report import html, junit, markdown, trials_csv
from tuner.report.charts.picture import write_pngs
from tuner.report.data import ReportData, load
from tuner.report.pull_request import write_proposal
from tuner.run.writing import own_directory, write_text

#: File of a run to the function that makes its text.
FORMATS: dict[str, Callable[[ReportData], str]] = {
    "report.html": html.render,
    "report.md": markdown.render,
    "junit.xml": junit.render,
    "trials.csv": trials_csv.render,
}

#: Directory of a run with its main charts as PNGs.
CHARTS = "charts"


def report_run(run_dir: Path, *, pictures: bool = True) -> list[Path]:
    """`render_all`, and what a run with a winner proposes."""
    return [*render_all(run_dir, pictures=pictures), *write_proposal(run_dir)]


def render_all(run_dir: Path, *, pictures: bool = True) -> list[Path]:
    """Renders a run from what is stored, finished or not; each file replaces the old one whole.

    Args:
        run_dir: Of the run.
        pictures: Draw the main charts as PNGs too, which takes longer than all the rest.

    Returns:
        The files, and the directory of the charts.

    Raises:
        SpecError: The directory holds no run.
        TunerError: A file of the run cannot be read.
    """
    data = load(run_dir)
    paths = []
    for name, render in FORMATS.items():
        write_text(run_dir / name, render(data))
        paths.append(run_dir / name)
    if pictures:
        write_pngs(data, own_directory(run_dir, CHARTS))
        paths.append(run_dir / CHARTS)
    return paths
