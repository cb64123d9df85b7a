"""The main charts as pictures, for places where HTML does not go: chats, tickets, slides."""

from __future__ import annotations

from pathlib import Path

from tuner.report.charts.picture import draw
from tuner.report.charts.sections import by_section
from tuner.report.data import ReportData
from tuner.run.writing import write_bytes

#: Sections of the page whose charts are drawn.
SECTIONS = ("load", "request-time", "importance", "prediction", "history", "overload")


def write_pngs(data: ReportData, directory: Path) -> list[Path]:
    """Writes the run's main charts, one file each, and removes those it has no more.

    Returns:
        The files, in the order of the page; named like the charts there (``pareto.png``).
    """
    charts = by_section(data)
    paths = []
    for chart in (chart for section in SECTIONS for chart in charts[section]):
        path = directory / f"{chart.name}.png"
        write_bytes(path, draw(chart, f"{data.model}: {chart.title}"))
        paths.append(path)
    for old in set(directory.glob("*.png")) - set(paths):
        old.unlink()
    return paths
