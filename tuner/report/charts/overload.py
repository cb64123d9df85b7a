"""The chart of what happens beyond the capacity, and afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.load.probes.overload import SLICE_S, Overload
from tuner.measurement.measurement import Slice
from tuner.report.charts.chart import (
    BEST,
    CURRENT,
    GREY,
    MS,
    Chart,
    Table,
    axis,
    bound_lines,
    hover,
    scatter,
)
from tuner.report.data import ReportData
from tuner.report.quantities import latency_text, rate_text


def over_time(data: ReportData) -> Chart | None:
    """p99 over time, before, during and after the overload, for the current and best config."""
    shown = list(_probes(data))
    if not shown:
        return None
    traces, rows, latencies = [], [], []
    for name, color, probe in shown:
        parts = [(s, s.p99_latency_us) for s in probe.slices if s.p99_latency_us is not None]
        x = [s.start_s + SLICE_S / 2 for s, _ in parts]
        y = [p99 * MS for _, p99 in parts]
        text = [_part_text(name, s) for s, _ in parts]
        traces.append(scatter(name, x, y, color=color, text=text, mode="lines+markers"))
        latencies += y
        rows += [_row(name, s) for s in probe.slices]
    probe = shown[0][2]
    slos = [row.found for row in data.slo if row.found.expression == probe.slo]
    layout: dict[str, Any] = {
        "xaxis": axis("seconds since the overload began", rangemode="normal"),
        "yaxis": axis("p99_latency (ms)", [*latencies, probe.bound_us * MS]),
    }
    bound_lines(layout, slos, at=1)
    _shade(layout, probe)
    return Chart(
        name="overload-p99",
        title="Latency over time",
        note="p99 of the requests due in each quarter of a second. In the grey area the load was "
        "120 % of what each config can serve within its SLOs; before and after, 80 %.",
        figure={"data": traces, "layout": layout},
        table=Table(("config", "from", "due", "answered", "refused", "p99"), tuple(rows)),
    )


def _probes(data: ReportData) -> Iterator[tuple[str, str, Overload]]:
    if data.overload is None:
        return
    if data.overload.current is not None:
        yield "current config", CURRENT, data.overload.current
    if data.overload.winner is not None:
        yield data.best_name, BEST, data.overload.winner


def _shade(layout: dict[str, Any], probe: Overload) -> None:
    layout["shapes"].append(
        {
            "type": "rect",
            "layer": "below",
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "x0": 0,
            "x1": probe.overload_s,
            "fillcolor": GREY,
            "opacity": 0.2,
            "line": {"width": 0},
        }
    )
    layout["annotations"].append(
        {
            "x": probe.overload_s / 2,
            "yref": "paper",
            "y": 1,
            "yanchor": "top",
            "text": "overload",
            "showarrow": False,
        }
    )


def _part_text(name: str, part: Slice) -> str:
    refused = f", refused {rate_text(part.refused_per_s)}" if part.refused_per_s else ""
    return hover(
        name,
        f"from {part.start_s:+.2f} s: p99 {latency_text(part.p99_latency_us)}",
        f"due {rate_text(part.due_per_s)}, answered {rate_text(part.answered_per_s)}{refused}",
    )


def _row(name: str, part: Slice) -> tuple[str, ...]:
    rates = (part.due_per_s, part.answered_per_s, part.refused_per_s)
    p99 = latency_text(part.p99_latency_us)
    return (name, f"{part.start_s:+.2f} s", *(rate_text(r) for r in rates), p99)
