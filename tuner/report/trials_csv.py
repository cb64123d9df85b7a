"""Every trial as one row of a table that pandas and spreadsheets can read."""

from __future__ import annotations

import csv
import io
from typing import Any

from tuner.plain import plain
from tuner.report.data import ReportData
from tuner.report.frames import trials_frame


def render(data: ReportData) -> str:
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
