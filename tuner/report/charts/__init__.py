"""Charts: plotly figures as plain values, each with a hint on how to read it, and its table.

This module has what all charts share: traces, axes, colors.

The browser sets the colors of text, grid and background to match the page (light or dark). Traces
use colors that people with any color vision can distinguish and that stand out from both
backgrounds (measured in the tests); no meaning depends on color alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from html import escape
from math import ceil, floor, inf, log10
from typing import Any, assert_never

from tuner.record.proved import ProvedConfig
from tuner.report.data import ReportData
from tuner.score.judge import SloOutcome, SloResult
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState

BLUE, ORANGE, GREEN, RED = "#2668ab", "#c67c00", "#239a72", "#c8452a"
PURPLE, GREY = "#c573b6", "#7f858e"
SKY = "#56aee2"  # for areas only: too light for lines and points

CURRENT, BEST = ORANGE, BLUE

#: An axis is logarithmic if its values span more than this ratio.
LOG_RATIO = 8.0
#: Upper edge of a latency axis, as a multiple of the highest bound.
EDGE = 2.0
#: From microseconds to the milliseconds of the axes.
MS = 1e-3


class TrialMarker(Enum):
    """Outcomes of trials, in words, each with its own shape and color."""

    FEASIBLE = ("meets the SLOs", "circle", BLUE)
    INFEASIBLE = ("misses an SLO", "circle-open", GREY)
    TOO_FEW = ("too few answers for a verdict", "star-open", GREY)
    PRUNED = ("dropped early", "x", PURPLE)
    FAILED = ("failed", "triangle-up-open", RED)

    def __init__(self, words: str, symbol: str, color: str) -> None:
        self.words, self.symbol, self.color = words, symbol, color

    @classmethod
    def of(cls, trial: Trial) -> TrialMarker:
        if trial.state is TrialState.MEASURED:
            match trial.outcome:
                case SloOutcome.MET:
                    return cls.FEASIBLE
                case SloOutcome.MISSED:
                    return cls.INFEASIBLE
                case SloOutcome.TOO_FEW:
                    return cls.TOO_FEW
                case _:
                    assert_never(trial.outcome)
        return cls.PRUNED if trial.state is TrialState.PRUNED else cls.FAILED


def sides(data: ReportData) -> Iterator[tuple[str, str, ProvedConfig, Point]]:
    """Name, color, record and representative point of the current and the best config."""
    named = (("current config", CURRENT, data.current), (data.best_name, BEST, data.best))
    for name, color, config in named:
        if config is not None:
            yield name, color, config, config.judged


def hover(*lines: str) -> str:
    """Lines of a hover label, escaped, since plotly interprets a kind of HTML in them."""
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
    """A scatter trace with ``text`` (from `hover`) as its hover label."""
    edge = {"color": color, "width": 1.5}
    return {
        "type": "scatter",
        "name": escape(name, quote=False),
        "x": list(x),
        "y": list(y),
        "mode": mode,
        "text": list(text),
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": color, "symbol": symbol, "size": size, "line": edge},
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
    """A line without labels; shape ``hv``: in steps."""
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
    """A bar trace; horizontal with ``orientation="h"``."""
    trace = {"type": "bar", "name": escape(name, quote=False), "x": list(x), "y": list(y)}
    return {**trace, "marker": {"color": color}, **more}


def stacked(
    labels: Sequence[tuple[str, str]],
    parts: Iterable[tuple[str, str, Sequence[float]]],
    height_px: int,
) -> dict[str, Any]:
    """One bar per label (of two lines) for its average request.

    ``parts``: name, color, and milliseconds for each bar.
    """
    y = [hover(*label) for label in labels]
    traces = []
    for part, color, lengths in parts:
        hover_text = f"{part} %{{x:.3g}} ms<extra></extra>"
        traces.append(bar(part, lengths, y, color, orientation="h", hovertemplate=hover_text))
    layout = {
        "barmode": "stack",
        "xaxis": axis("average time of a request (ms)"),
        "yaxis": {"automargin": True, "autorange": "reversed"},
        "height": height_px,
    }
    return {"data": traces, "layout": layout}


def axis(title: str, values: Iterable[float] = ()) -> dict[str, Any]:
    """An axis that starts at 0, or is logarithmic if ``values`` span too much for that.

    Args:
        title: The title, with the unit.
        values: Values that must be visible; without any, plotly chooses the range.
    """
    common: dict[str, Any] = {
        "title": {"text": escape(title, quote=False), "font": {"size": 13}},
        "automargin": True,
    }
    positive = sorted(v for v in values if v > 0)
    if not positive:
        return {**common, "rangemode": "tozero"}
    low, high = positive[0], positive[-1]
    if high <= low * LOG_RATIO:
        return {**common, "range": [0, high * 1.08]}
    ticks = _ticks(low, high)
    ranges = [log10(low / 1.15), log10(high * 1.15)]
    words = [f"{tick:g}" for tick in ticks]
    common["title"]["text"] += ", log scale"
    logarithmic = {"type": "log", "range": ranges, "tickvals": ticks, "ticktext": words}
    return {**common, **logarithmic}


def latency_layout(
    x_title: str, y_title: str, values: Sequence[float], slos: Sequence[SloResult]
) -> tuple[dict[str, Any], float]:
    """Latencies in milliseconds over ``x_title``, with a dashed line at each bound.

    Returns:
        The layout and the upper edge. Points far beyond the bounds are to be drawn at the edge, so
        that the bounds remain readable, unless nearly all points are beyond.
    """
    bounds = {slo.bound * MS: slo.expression for slo in slos}
    edge = EDGE * max(bounds, default=0.0)
    if sum(value <= edge for value in values) * 2 <= len(values):
        edge, y_axis = inf, axis(y_title, [*values, *bounds])
    else:
        highest = min(edge, max([*values, *bounds]))
        y_axis = {**axis(y_title), "range": [0, highest * 1.06]}
    dashed = {"color": RED, "width": 2, "dash": "dash"}
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": dashed}
    label = {"xref": "paper", "x": 0.5, "xanchor": "center", "yanchor": "bottom", "yshift": 3}
    label |= {"showarrow": False, "font": {"color": RED}}
    logarithmic = y_axis.get("type") == "log"
    layout = {
        "xaxis": axis(x_title),
        "yaxis": y_axis,
        "shapes": [{**across, "y0": bound, "y1": bound} for bound in bounds],
        "annotations": [
            {
                **label,
                "y": log10(bound) if logarithmic else bound,
                "text": escape(expression, quote=False),
            }
            for bound, expression in bounds.items()
        ],
    }
    return layout, edge


def _ticks(low: float, high: float) -> list[float]:
    """Ticks at 1, 2, 5, 10, ... over a range of positive numbers; if wide, powers of 10."""
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps]
