"""The first chart of a report as a PNG, for a slide or a pull request; matplotlib draws it.

The chart is a plotly figure of scatter traces; each point may have its own symbol.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from html import unescape
from typing import TYPE_CHECKING, Any

from tuner.report.blocks import Chart
from tuner.report.data import ReportData
from tuner.report.headline import headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Markers by plotly's names of symbols; those with `-open` are hollow.
_MARKERS = {"circle": "o", "square": "s", "star": "*", "x": "x", "triangle-up": "^"}
_DASHES = {"dash": "--", "dot": ":"}
#: Size in inches, and dots per inch: 1280 by 720 pixels.
_SIZE, _DPI = (8.0, 4.5), 160


def png(data: ReportData, chart: Chart) -> bytes:
    """The chart as PNG, with the verdict above it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    for trace in chart.figure["data"]:
        _draw(axes, trace)
    layout = chart.figure["layout"]
    for shape in layout.get("shapes", ()):
        _draw_line(axes, shape)
    for note in layout.get("annotations", ()):
        _write(axes, note)
    for name, limit in (("xaxis", axes.set_xlim), ("yaxis", axes.set_ylim)):
        limit(*layout[name].get("range", (0.0, None)))
    axes.set_xlabel(layout["xaxis"]["title"]["text"])
    axes.set_ylabel(layout["yaxis"]["title"]["text"])
    axes.set_title(f"{data.model}: {headline(data)}", fontsize=10, loc="left", wrap=True)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, framealpha=0.9)
    image = io.BytesIO()
    figure.savefig(image, format="png", metadata={"Software": "triton-tune"})
    return image.getvalue()


def _draw(axes: Axes, trace: Mapping[str, Any]) -> None:
    marker, opacity = trace["marker"], trace.get("opacity", 1.0)
    color = marker["color"]
    if "lines" in trace["mode"]:
        axes.plot(trace["x"], trace["y"], color=color, alpha=opacity, linewidth=1.5)
    symbols = marker["symbol"]
    symbols = [symbols] * len(trace["x"]) if isinstance(symbols, str) else symbols
    name = trace["name"]
    for x, y, symbol in zip(trace["x"], trace["y"], symbols, strict=True):
        hollow = symbol.endswith("-open")
        axes.scatter(
            [x],
            [y],
            s=4.0 * marker["size"],
            marker=_MARKERS.get(symbol.removesuffix("-open"), "o"),
            facecolors="none" if hollow else color,
            edgecolors=color,
            alpha=opacity,
            label=name,
            zorder=3,
        )
        name = "_"  # the legend has one entry per trace


def _draw_line(axes: Axes, shape: Mapping[str, Any]) -> None:
    style = {"color": shape["line"]["color"], "linestyle": _DASHES[shape["line"]["dash"]]}
    if shape.get("xref") == "paper":
        axes.axhline(shape["y0"], **style)
    else:
        axes.axvline(shape["x0"], **style)


def _write(axes: Axes, note: Mapping[str, Any]) -> None:
    x_is_share, y_is_share = (note.get(ref) == "paper" for ref in ("xref", "yref"))
    transform = axes.transData
    if x_is_share:
        transform = axes.get_yaxis_transform()
    elif y_is_share:
        transform = axes.get_xaxis_transform()
    axes.text(
        note["x"],
        note["y"],
        unescape(note["text"]),
        color=note["font"]["color"],
        ha=note["xanchor"],
        va=note["yanchor"],
        fontsize=8,
        transform=transform,
    )
