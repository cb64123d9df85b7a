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
from tuner.report.quantities import latency_text, rate_text, share_text
from tuner.run.confirmation import LoadCurve


def load_curve(data: ReportData) -> Chart | None:
    """p99 and p50 against the load, for the config that the verdict is about."""
    curve = None if data.subject is None else data.subject.soak.curve
    if curve is None or not curve.points:
        return None
    loads = [p.level for p in curve.points]
    parts = (
        ("p99", BEST, [p.p99_latency_us for p in curve.points]),
        ("p50", GREY, [p.p50_latency_us for p in curve.points]),
    )
    slos = [row.found for row in data.slo if row.found.metric == curve.metric]
    shown = [us * MS for _, _, values in parts for us in values]
    layout: dict[str, Any] = {
        "xaxis": axis("load (requests/s)", rangemode="normal"),
        "yaxis": axis("latency (ms)", [*shown, *(slo.bound * MS for slo in slos)]),
    }
    bound_lines(layout, slos)
    texts = [
        hover(*(f"{h}: {c}" for h, c in zip(_HEADS, row, strict=True))) for row in _rows(curve)
    ]
    traces = [
        scatter(name, loads, [us * MS for us in us_], color=color, text=texts, mode="lines+markers")
        for name, color, us_ in parts
    ]
    sentence = curve.sentence[0].upper() + curve.sentence[1:]
    return Chart(
        name="load-curve",
        title="Latency around the credited load",
        note=f"{sentence}. Each load lasted 5 s, on the server that was soaked: rough figures.",
        figure={"data": traces, "layout": layout},
        table=Table(_HEADS, _rows(curve)),
    )


_HEADS = ("of the credited load", "load", "p50", "p99", "late", "requests")


def _rows(curve: LoadCurve) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            f"{100 * p.share:.0f} %",
            rate_text(p.level),
            latency_text(p.p50_latency_us),
            latency_text(p.p99_latency_us),
            share_text(p.late_share),
            f"{p.requests:,}",
        )
        for p in curve.points
    )
