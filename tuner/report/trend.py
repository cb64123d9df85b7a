"""The last checks of a model in a table: how what is compared went, night by night."""

from __future__ import annotations

from tuner.report.charts.chart import Table
from tuner.report.quantities import NOTHING, metric_text
from tuner.run.check_schema import CheckFacts, HistoryRow
from tuner.score.ratio import Ratio

#: Characters of a config's hash that tell configs of one model apart.
_HASH = 8


def trend(check: CheckFacts) -> Table | None:
    """None before there is a second check."""
    if len(check.history) < 2:
        return None
    headers = ("checked", check.compared, "of the accepted", "ended", "config")
    return Table(headers, tuple(_row(check, row) for row in check.history))


def ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    return f"{ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def checked_at(row: HistoryRow) -> str:
    """To the minute."""
    return row.checked_at[:16].replace("T", " ")


def config_text(row: HistoryRow) -> str:
    """As much of the config's hash as tells it apart from others of the model."""
    return row.config_sha256[:_HASH]


def _row(check: CheckFacts, row: HistoryRow) -> tuple[str, ...]:
    return (
        checked_at(row),
        metric_text(check.compared, row.value),
        ratio_text(row.ratio),
        row.status.value,
        config_text(row),
    )
