"""A chart: a plotly figure as plain values, a note on how to read it, and its table.

The colours of text, grid and background are set in the browser, to match the page (light or dark).
Traces use colours that people with any colour vision can tell apart and that stand out from both
backgrounds (measured in the tests); no meaning depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from html import escape
from math import ceil, floor, inf, log10
from typing import Any

from tuner.report.data import ReportData
from tuner.report.side import Side
from tuner.score.judge import SloResult
from tuner.score.trial import Trial, TrialState

BLUE, ORANGE, GREEN, RED = "#2668ab", "#c67c00", "#239a72", "#c8452a"
PURPLE, GREY = "#c573b6", "#7f858e"
SKY = "#56aee2"  # for areas only: too light for lines and points

CURRENT, BEST = ORANGE, BLUE

#: Values that span more than this ratio are drawn on a logarithmic axis.
LOG_RATIO = 8.0
#: So many times the highest bound is the upper edge of an axis for latencies.
EDGE = 2.0
#: Microseconds to the milliseconds of the axes.
MS = 1e-3


class Outcome(Enum):
    """Trials by how they ended, each with a shape and a colour of its own."""

    FEASIBLE = "meets the SLOs"
    INFEASIBLE = "misses an SLO"
    PRUNED = "stopped early: cannot win"

    @property
    def symbol(self) -> str:
        return {"FEASIBLE": "circle", "INFEASIBLE": "circle-open", "PRUNED": "x"}[self.name]

    @property
    def color(self) -> str:
        return {"FEASIBLE": BLUE, "INFEASIBLE": GREY, "PRUNED": PURPLE}[self.name]


def outcome_of(trial: Trial) -> Outcome:
    """The outcome of a trial that has a score."""
    if trial.state is TrialState.PRUNED:
        return Outcome.PRUNED
    feasible = trial.score is not None and trial.score.feasible
    return Outcome.FEASIBLE if feasible else Outcome.INFEASIBLE


def sides(data: ReportData) -> Iterator[tuple[str, str, Side]]:
    """(name, colour, side) of the current and the best config, whichever there are."""
    if data.current is not None and data.current.judged is not None:
        yield "current config", CURRENT, data.current
    if data.best is not None and data.best.judged is not None:
        yield data.best_name, BEST, data.best


def hover(*lines: str) -> str:
    """Lines of a hover label; plotly reads its own kind of HTML in them, so they are escaped."""
    return "<br>".join(escape(line, quote=False) for line in lines if line)


def scatter(
    name: str,
    x: Sequence[object],
    y: Sequence[float],
    *,
    color: str,
    text: Sequence[str],
    mode: str = "markers",
    symbol: str = "circle",
    size: int = 9,
    **more: Any,
) -> dict[str, Any]:
    """A scatter trace whose hover label is ``text`` (from `hover`)."""
    return {
        "type": "scatter",
        "name": escape(name, quote=False),
        "x": list(x),
        "y": list(y),
        "mode": mode,
        "text": list(text),
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": color,
            "symbol": symbol,
            "size": size,
            "line": {"color": color, "width": 1.5},
        },
        "line": {"color": color, "width": 2},
        **more,
    }


def line(
    name: str,
    x: Sequence[object],
    y: Sequence[float | None],
    color: str,
    *,
    shape: str = "linear",
    dash: str = "solid",
) -> dict[str, Any]:
    """A line without labels of its own; shape ``hv``: in steps."""
    return {
        "type": "scatter",
        "name": name,
        "x": list(x),
        "y": list(y),
        "mode": "lines",
        "line": {"color": color, "width": 2, "shape": shape, "dash": dash},
        "hoverinfo": "skip",
    }


def bar(
    name: str, x: Sequence[object], y: Sequence[object], color: str, **more: Any
) -> dict[str, Any]:
    """A bar trace; lay it down with ``orientation="h"``."""
    return {
        "type": "bar",
        "name": escape(name, quote=False),
        "x": list(x),
        "y": list(y),
        "marker": {"color": color},
        **more,
    }


def stacked(
    labels: Sequence[str], parts: Iterable[tuple[str, str, Sequence[float]]], height: int
) -> dict[str, Any]:
    """One bar per label for its average request, made of parts: name, colour, milliseconds.

    ``height`` in pixels.
    """
    traces = [
        bar(
            part,
            lengths,
            labels,
            color,
            orientation="h",
            hovertemplate=f"{part} %{{x:.3g}} ms<extra></extra>",
        )
        for part, color, lengths in parts
    ]
    layout = {
        "barmode": "stack",
        "xaxis": axis("average time of a request (ms)"),
        "yaxis": {"automargin": True, "autorange": "reversed"},
        "height": height,
    }
    return {"data": traces, "layout": layout}


def axis(title: str, values: Iterable[float] = (), **more: Any) -> dict[str, Any]:
    """An axis that starts at 0, or is logarithmic if ``values`` span too much for that.

    Args:
        title: With the unit.
        values: What must be visible; if empty, plotly chooses the range.
        more: Plotly's own settings.
    """
    common: dict[str, Any] = {
        "title": {"text": escape(title, quote=False), "font": {"size": 13}},
        "automargin": True,
    }
    positive = sorted(v for v in values if v > 0)
    if not positive:
        return {**common, "rangemode": "tozero", **more}
    low, high = positive[0], positive[-1]
    if high <= low * LOG_RATIO:
        return {**common, "range": [0, high * 1.08], **more}
    ticks = _ticks(low, high)
    ranges = [log10(low / 1.15), log10(high * 1.15)]
    words = [f"{tick:g}" for tick in ticks]
    common["title"]["text"] += ", log scale"
    logarithmic = {"type": "log", "range": ranges, "tickvals": ticks, "ticktext": words}
    return {**common, **logarithmic, **more}


def latency_axis(
    title: str, values: Sequence[float], slos: Sequence[SloResult]
) -> tuple[dict[str, Any], float]:
    """An axis on which the bounds are seen well, and its upper edge; all in milliseconds.

    What is far beyond the bounds is to be drawn at the edge, unless nearly everything is.
    """
    bounds = [slo.bound * MS for slo in slos]
    edge = EDGE * max(bounds, default=0.0)
    if sum(value <= edge for value in values) * 2 <= len(values):
        return axis(title, [*values, *bounds]), inf
    highest = min(edge, max([*values, *bounds]))
    return {**axis(title), "range": [0, highest * 1.06]}, edge


def _ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... around a range of positive numbers; only powers of 10 when it is wide."""
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps]


def bound_lines(layout: dict[str, Any], results: Iterable[SloResult]) -> None:
    """Draws each bound as a dashed line across the chart, with its expression.

    Args:
        layout: Changed in place; ``yaxis`` must be set.
        results: SLOs on the latency of the y axis, which is in milliseconds.
    """
    bounds = {r.bound * MS: r.expression for r in results}
    logarithmic = layout["yaxis"].get("type") == "log"
    across = {"xref": "paper", "x0": 0, "x1": 1}
    dashed = {"color": RED, "width": 2, "dash": "dash"}
    layout["shapes"] = [
        {"type": "line", **across, "y0": bound, "y1": bound, "line": dashed} for bound in bounds
    ]
    layout["annotations"] = [
        {
            "xref": "paper",
            "x": 0.5,
            "xanchor": "center",
            "yanchor": "bottom",
            "yshift": 1,
            "y": log10(bound) if logarithmic else bound,
            "text": escape(expression, quote=False),
            "showarrow": False,
            "font": {"color": RED},
        }
        for bound, expression in bounds.items()
    ]
