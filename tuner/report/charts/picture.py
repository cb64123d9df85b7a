"""The main charts as PNGs, for places that do not show HTML: chats, tickets, slides.

The same plotly figures, drawn by matplotlib. Only what the main charts use is supported: scatter
and bar traces, bounds and shaded areas.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from html import unescape
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tuner.report.charts.chart import Chart
from tuner.report.charts.sections import by_section
from tuner.report.data import ReportData
from tuner.run.writing import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Sections of the page whose charts are drawn.
SECTIONS = ("load", "request-time", "importance", "prediction", "history", "overload")

_DPI = 120
_WIDTH_IN = 9.0
_LEGEND_COLUMNS = 3
#: Pixels of the page's charts to an inch of paper.
_PIXELS_PER_IN = 92
_TEXT, _GRID = "#1f2421", "#e6e8e5"

_Direction = Literal["x", "y"]

#: plotly's symbols: matplotlib's marker, and whether it is hollow.
_MARKERS = {
    "circle": ("o", False),
    "circle-open": ("o", True),
    "diamond-open": ("D", True),
    "triangle-up-open": ("^", True),
    "x": ("X", False),
}
_DASHES = {"solid": "-", "dash": "--", "dot": ":"}

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _GRID,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


def write_pngs(data: ReportData, directory: Path) -> list[Path]:
    """Writes the run's main charts, one file each, and removes those that it no longer has.

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


def draw(chart: Chart, title: str) -> bytes:
    """The chart as a PNG on white, 1,080 pixels wide, with ``title`` over it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    layout, traces = chart.figure["layout"], chart.figure["data"]
    legend = layout.get("showlegend", True)
    with mpl.rc_context(_STYLE):
        height_in = max(chart.height / _PIXELS_PER_IN, 2.2)
        figure = Figure(figsize=(_WIDTH_IN, height_in), dpi=_DPI)
        figure.suptitle(title, x=0.015, y=1 - 0.1 / height_in, ha="left", va="top", fontsize=12)
        place = figure.subplots()
        bars = [t for t in traces if t["type"] == "bar"]
        if bars:
            _draw_bars(place, bars, layout)
        for trace in traces:
            if trace["type"] == "scatter":
                _draw_scatter(place, trace)
        _set_axis(place, "x", layout["xaxis"])
        _set_axis(place, "y", layout["yaxis"])
        _draw_marks(place, layout)
        if legend:
            place.legend(
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=_LEGEND_COLUMNS, handlelength=1.6
            )
        rows = ceil(len(traces) / _LEGEND_COLUMNS) if legend else 0
        figure.subplots_adjust(
            left=_left_in(bars) / _WIDTH_IN,
            right=1 - 0.2 / _WIDTH_IN,
            bottom=0.6 / height_in,
            top=1 - (0.5 + 0.22 * rows) / height_in,
        )
        return _png(figure, title, chart.note)


def _left_in(bars: Sequence[Mapping[str, Any]]) -> float:
    """Inches left of the axis: for the labels of bars that lie, else for numbers."""
    labels = [label for t in bars if t.get("orientation") == "h" for label in t["y"]]
    lines = [line for label in labels for line in str(label).split("<br>")]
    return 0.65 + 0.075 * max(map(len, lines)) if lines else 0.75


def _png(figure: Figure, title: str, note: str) -> bytes:
    """Drawn once; ``Figure.savefig`` would draw it twice, which takes twice as long."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)  # its print_png has no types
    canvas.print_png(
        file,
        metadata={"Title": title, "Description": note, "Software": None},
        pil_kwargs={"compress_level": 3},  # quicker than the default, and little larger
    )
    return file.getvalue()


def _draw_scatter(place: Axes, trace: Mapping[str, Any]) -> None:
    x, y, mode = trace["x"], trace["y"], trace["mode"]
    line, marker = trace.get("line", {}), trace.get("marker", {})
    shape, hollow = _MARKERS[marker.get("symbol", "circle")]
    color = marker.get("color") or line["color"]
    errors = trace.get("error_y")
    if errors:
        place.errorbar(
            x, y, [errors["arrayminus"], errors["array"]], fmt="none", ecolor=color, elinewidth=1
        )
    place.plot(
        x,
        y,
        label=unescape(trace["name"]),
        color=color,
        linestyle=_DASHES[line.get("dash", "solid")] if "lines" in mode else "none",
        linewidth=line.get("width", 2) * 0.8,
        drawstyle="steps-post" if line.get("shape") == "hv" else "default",
        marker=shape if "markers" in mode else "none",
        markersize=marker.get("size", 9) * 0.7,
        markerfacecolor="none" if hollow else color,
        clip_on=trace.get("cliponaxis", True),
    )


def _draw_bars(place: Axes, traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> None:
    lying = traces[0].get("orientation") == "h"
    of_labels: _Direction = "y" if lying else "x"
    of_lengths: _Direction = "x" if lying else "y"
    found = list(dict.fromkeys(label for t in traces for label in t[of_labels]))
    labels = layout[f"{of_labels}axis"].get("categoryarray", found)
    grouped = layout.get("barmode") == "group" and len(found) < sum(len(t["x"]) for t in traces)
    thick = 0.8 / len(traces) if grouped else 0.8
    ends = dict.fromkeys(labels, 0.0)
    for number, trace in enumerate(traces):
        shift = (number - (len(traces) - 1) / 2) * thick if grouped else 0.0
        at = [labels.index(label) + shift for label in trace[of_labels]]
        lengths = trace[of_lengths]
        starts = [0.0 if grouped else ends[label] for label in trace[of_labels]]
        named = {"color": trace["marker"]["color"], "label": unescape(trace["name"])}
        if lying:
            place.barh(at, lengths, thick, left=starts, **named)
        else:
            place.bar(at, lengths, thick, bottom=starts, **named)
        for label, length in zip(trace[of_labels], lengths, strict=True):
            ends[label] += length
    texts = [unescape(str(label)).replace("<br>", "\n") for label in labels]
    (place.set_yticks if lying else place.set_xticks)(range(len(labels)), texts)
    place.grid(visible=False, axis=of_labels)


def _set_axis(place: Axes, which: _Direction, wanted: Mapping[str, Any]) -> None:
    """``wanted`` is plotly's axis."""
    axis = {"x": place.xaxis, "y": place.yaxis}[which]
    place.set(**{f"{which}label": unescape(wanted.get("title", {}).get("text", ""))})
    logarithmic = wanted.get("type") == "log"
    if logarithmic:
        place.set(**{f"{which}scale": "log"})
        axis.set_ticks(wanted["tickvals"], wanted["ticktext"])
        axis.set_ticks([], minor=True)
    if "range" in wanted:
        ends = [10**end if logarithmic else end for end in wanted["range"]]
        place.set(**{f"{which}lim": ends})
    elif wanted.get("rangemode") == "tozero" and wanted.get("type") != "category":
        highest = {"x": place.dataLim.x1, "y": place.dataLim.y1}[which]
        if math.isfinite(highest):  # there is something on it
            place.set(**{f"{which}lim": (0.0, highest * 1.05)})
    if wanted.get("autorange") == "reversed":
        place.invert_yaxis()


def _draw_marks(place: Axes, layout: Mapping[str, Any]) -> None:
    """Bounds, shaded areas and their labels."""
    for shape in layout.get("shapes", []):
        if shape["type"] == "rect":
            place.axvspan(
                shape["x0"], shape["x1"], color=shape["fillcolor"], alpha=shape["opacity"], lw=0
            )
        else:
            line = shape["line"]
            dash = _DASHES[line.get("dash", "solid")]
            place.axhline(shape["y0"], color=line["color"], linestyle=dash, linewidth=1.6)
    for words in layout.get("annotations", []):
        across, above = words.get("xref") == "paper", words.get("yref") != "paper"
        y = 10 ** words["y"] if place.get_yscale() == "log" and above else words["y"]
        place.annotate(
            unescape(words["text"]),
            (words["x"], y),
            xycoords=(
                "axes fraction" if across else "data",
                "data" if above else "axes fraction",
            ),
            xytext=(0, 2 if above else -2),
            textcoords="offset points",
            ha=words.get("xanchor", "center"),
            va="bottom" if above else "top",
            color=words.get("font", {}).get("color", _TEXT),
        )
