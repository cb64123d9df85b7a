"""The last checks of a model: a table, and a chart with the accepted result and the loss limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.report.blocks import Chart, Table
from tuner.report.charts.chart import BLUE, GREEN, ORANGE, RED, axis, hover, line, scatter
from tuner.report.quantities import NOTHING, metric_text, share_text
from tuner.run.checks import CheckFacts, HistoryRow
from tuner.run.status import CheckStatus
from tuner.score.ratio import Ratio
from tuner.spec.metrics import METRICS, THROUGHPUT, Better

_PASSED = (CheckStatus.FINE, CheckStatus.WORSE, CheckStatus.ACCEPTED)
#: Checks by how they count, each with a shape and a colour of its own.
_KINDS = {
    "passed": ("circle", BLUE),
    "inconclusive": ("diamond-open", ORANGE),
    "did not pass": ("x", RED),
}
#: Characters of a config's hash that tell configs of one model apart.
_HASH = 8


def trend(check: CheckFacts) -> Table | None:
    """The last checks as a table; None before there is a second check."""
    if len(check.history) < 2:
        return None
    headers = ("checked", check.compared, "ratio to accepted", "ended", "config")
    return Table(headers, tuple(_row(check, row) for row in check.history), "The last checks")


def ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOTHING
    return f"{ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _row(check: CheckFacts, row: HistoryRow) -> tuple[str, ...]:
    return (
        row.checked_at[:16].replace("T", " "),
        metric_text(check.compared, row.value),
        ratio_text(row.ratio),
        row.status.value,
        row.config_sha256[:_HASH],
    )


def trend_chart(check: CheckFacts) -> Chart | None:
    """The compared value, check by check; None before two checks have one."""
    table = trend(check)
    rows = [row for row in check.history if row.value is not None]
    if table is None or len(rows) < 2:
        return None
    title, factor = _unit(check.compared)
    days = [row.checked_at[5:10] for row in rows]
    times = [row.checked_at[5:16].replace("T", "<br>") for row in rows]
    accepted = [_accepted(check, row) for row in rows]
    limits = [None if a is None else _times(check, a, 1.0 - check.fail) for a in accepted]
    traces = [
        *_steps("accepted result", GREEN, "solid", accepted, factor),
        *_steps(f"a loss of {share_text(check.fail)}", RED, "dash", limits, factor),
        *(_points(check, rows, kind, factor) for kind in _KINDS if kind in map(_kind, rows)),
    ]
    layout = {
        "xaxis": {
            "automargin": True,
            "tickvals": list(range(len(rows))),
            "ticktext": days if len({*days}) == len(days) else times,
            "range": [-0.5, len(rows) - 0.5],
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {**axis(title), "rangemode": "normal"},
        "height": 340,
    }
    return Chart(
        name="trend",
        title=f"{check.compared.capitalize()}, check by check",
        note="The mean of each check's rounds. Bars are the 95% interval of its ratio to the "
        "accepted result. The axis does not begin at 0.",
        figure={"data": traces, "layout": layout},
        table=table,
    )


def _unit(compared: str) -> tuple[str, float]:
    """Title of the axis, and the factor from the base unit to its unit."""
    unit, factor = METRICS.get(compared, THROUGHPUT).unit.axis
    return f"{compared} ({unit})", factor


def _times(check: CheckFacts, value: float, ratio: float) -> float:
    """The value that is ``ratio`` times as good."""
    better = METRICS.get(check.compared, THROUGHPUT).better
    return value * ratio if better is Better.HIGHER else value / ratio


def _accepted(check: CheckFacts, row: HistoryRow) -> float | None:
    """What a check was compared with: its value over its ratio; the first accepted, itself."""
    assert row.value is not None
    if row.ratio is not None:
        return _times(check, row.value, 1.0 / row.ratio.estimate)
    return row.value if row.status is CheckStatus.ACCEPTED else None


def _steps(
    name: str, color: str, dash: str, levels: Sequence[float | None], factor: float
) -> list[dict[str, Any]]:
    """A level under each check; nothing where none has one."""
    if not any(levels):
        return []
    x = [i + side for i in range(len(levels)) for side in (-0.5, 0.5)]
    y = [None if level is None else level * factor for level in levels for _ in range(2)]
    return [line(name, x, y, color, dash=dash)]


def _kind(row: HistoryRow) -> str:
    if row.status in _PASSED:
        return "passed"
    return "inconclusive" if row.status is CheckStatus.INCONCLUSIVE else "did not pass"


def _points(
    check: CheckFacts, rows: Sequence[HistoryRow], kind: str, factor: float
) -> dict[str, Any]:
    symbol, color = _KINDS[kind]
    members = [(i, row) for i, row in enumerate(rows) if _kind(row) == kind]
    values = [(row.value or 0.0) * factor for _, row in members]
    ends = [_interval(check, row, factor) for _, row in members]
    return scatter(
        kind,
        [i for i, _ in members],
        values,
        color=color,
        symbol=symbol,
        text=[hover(*_row(check, row)) for _, row in members],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
            "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
            "color": color,
            "thickness": 1,
            "width": 4,
        },
    )


def _interval(check: CheckFacts, row: HistoryRow, factor: float) -> tuple[float, float]:
    """Lower and upper end of a bar; the value twice where it was not compared."""
    value = (row.value or 0.0) * factor
    accepted = _accepted(check, row)
    if row.ratio is None or accepted is None:
        return value, value
    ends = [_times(check, accepted, end) * factor for end in (row.ratio.low, row.ratio.high)]
    return min(ends), max(ends)
