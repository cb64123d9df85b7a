"""Throughput against latency of the current and the best config, over the measured loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.report.analysis import Latency, unsimplified
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
from tuner.report.quantities import VERDICTS, found_text, latency_text, load_text, rate_text
from tuner.report.side import Side, by_load
from tuner.score.point import Point
from tuner.score.verdict import SloResult
from tuner.spec.metrics import METRICS


def sides(data: ReportData) -> Iterator[tuple[str, str, Side]]:
    """(name, colour, side) of the current and the best config, whichever there are."""
    if data.current is not None and data.current.judged is not None:
        yield "current config", CURRENT, data.current
    if data.best is not None and data.best.judged is not None:
        yield data.best_name, BEST, data.best


def latency_slos(data: ReportData) -> dict[Latency, list[SloResult]]:
    """SLOs by the latency they bound; ``p99_latency`` with none if no SLO is on a latency."""
    found: dict[Latency, list[SloResult]] = {}
    for row in data.slo:
        if METRICS[row.found.metric].is_latency:
            found.setdefault(Latency(row.found.metric, row.found.stream), []).append(row.found)
    return found or {Latency("p99_latency"): []}


@dataclass(frozen=True)
class _Series:
    """Measurements of one config that belong together."""

    label: str
    color: str
    points: tuple[Point, ...]
    mode: str = "lines+markers"
    symbol: str = "circle"
    dash: str = "solid"


def curves(data: ReportData) -> tuple[Chart, ...]:
    """Latency over throughput for the current and the best config, one chart per latency SLO."""
    shown = list(_series(data))
    if not shown:
        return ()
    charts = []
    for number, (latency, slos) in enumerate(latency_slos(data).items()):
        suffix = f"-{number}" if latency.stream else ""  # whose name may be any text
        charts.append(_curve(f"curve-{latency.metric}{suffix}", latency, slos, shown))
    return tuple(charts)


def _series(data: ReportData) -> Iterator[_Series]:
    for name, color, side in sides(data):
        if side.points:
            yield _Series(name, color, side.points)
        again = by_load([r.point for r in side.repeats])
        if again:
            label = f"{name}, measured again"
            yield _Series(label, color, again, mode="markers", symbol="diamond-open")
    origin = unsimplified(data)
    if origin is not None:
        label = f"before it was simplified (trial {origin.number})"
        yield _Series(label, GREY, by_load(origin.points), dash="dot")


def _curve(
    name: str, latency: Latency, slos: Sequence[SloResult], series: Sequence[_Series]
) -> Chart:
    known = ((s, tuple(p for p in s.points if latency.is_known(p))) for s in series)
    shown = [replace(s, points=points) for s, points in known if points]
    latencies = [latency.of(p) * MS for series in shown for p in series.points]
    layout: dict[str, Any] = {
        "xaxis": axis("throughput (infer/s)"),
        "yaxis": axis(f"{latency} (ms)", [*latencies, *(s.bound * MS for s in slos)]),
    }
    bound_lines(layout, slos)
    whose = f" of {latency.stream}" if latency.stream else ""
    rows = tuple(_point_row(series.label, p, latency) for series in shown for p in series.points)
    return Chart(
        name=name,
        title=f"Throughput and {latency.metric.replace('_', ' ')}{whose}",
        note="Each point is one load; further right and lower is better. A config's last point "
        "under the dashed line is the most that it serves.",
        figure={"data": [_trace(series, latency) for series in shown], "layout": layout},
        table=Table(("config", "load", "throughput", str(latency), "SLOs"), rows),
    )


def _trace(series: _Series, latency: Latency) -> dict[str, Any]:
    return scatter(
        series.label,
        [p.measurement.throughput_infer_per_s for p in series.points],
        [latency.of(p) * MS for p in series.points],
        color=series.color,
        text=[_point_text(series.label, p) for p in series.points],
        mode=series.mode,
        symbol=series.symbol,
        line={"color": series.color, "width": 2, "dash": series.dash},
    )


def _point_text(label: str, point: Point) -> str:
    measurement = point.measurement
    return hover(
        label,
        f"load {load_text(measurement.load)}",
        f"{rate_text(measurement.throughput_infer_per_s)}",
        f"p50 {latency_text(measurement.p50_latency_us)}, "
        f"p99 {latency_text(measurement.p99_latency_us)}",
        *(_found_text(s) for s in point.slo),
    )


def _found_text(result: SloResult) -> str:
    return f"{result.expression}: {found_text(result)}, {VERDICTS[result.verdict]}"


def _point_row(label: str, point: Point, latency: Latency) -> tuple[str, ...]:
    measurement = point.measurement
    verdicts = ", ".join(f"{s.expression} {VERDICTS[s.verdict]}" for s in point.slo)
    return (
        label,
        load_text(measurement.load),
        rate_text(measurement.throughput_infer_per_s),
        latency_text(latency.of(point)),
        verdicts,
    )
