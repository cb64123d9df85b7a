"""The chart of the latency around the load that a config is credited with."""

from __future__ import annotations

from typing import Any

from tuner.report.charts.chart import (
    BEST,
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
from tuner.report.quantities import latency_text, load_text, share_text

_HEADS = ("of the credited load", "load", "p50", "p99", "late", "requests")


def load_curve(data: ReportData) -> Chart | None:
    """p99 and p50 against the load, for the config that the verdict is about."""
    soak = None if data.subject is None else data.subject.soak
    if soak is None or soak.curve is None or not soak.curve.points:
        return None
    points, credited = soak.curve.points, soak.credited_level or 0.0
    own = [s.point.limiting for s in points]
    rows = tuple(
        (
            f"{100 * s.level / credited:.0f} %",
            load_text(s.measurement.load),
            latency_text(m.p50_latency_us),
            latency_text(m.p99_latency_us),
            share_text(s.late.share if s.late else None),
            f"{m.completed_count:,}",
        )
        for s, m in zip(points, own, strict=True)
    )
    slos = [row.found for row in data.slo if row.found.metric == soak.curve.metric]
    parts = {
        ("p99", BEST): [m.p99_latency_us * MS for m in own],
        ("p50", GREY): [m.p50_latency_us * MS for m in own],
    }
    shown = [ms for part in parts.values() for ms in part]
    layout: dict[str, Any] = {
        "xaxis": axis("load (requests/s)", rangemode="normal"),
        "yaxis": axis("latency (ms)", [*shown, *(slo.bound * MS for slo in slos)]),
    }
    bound_lines(layout, slos)
    texts = [hover(*(f"{h}: {c}" for h, c in zip(_HEADS, row, strict=True))) for row in rows]
    loads, mode = [s.level for s in points], "lines+markers"
    traces = [
        scatter(name, loads, ms, color=color, text=texts, mode=mode)
        for (name, color), ms in parts.items()
    ]
    said = soak.curve.sentence
    return Chart(
        name="load-curve",
        title="Latency around the credited load",
        note=f"{said[0].upper()}{said[1:]}. Each load lasted 5 s, on the server that was soaked.",
        figure={"data": traces, "layout": layout},
        table=Table(_HEADS, rows),
    )
