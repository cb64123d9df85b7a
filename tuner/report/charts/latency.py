"""Charts of what the model does under load: throughput, latency, batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tuner.report.analysis import TrialPoint, pareto, value
from tuner.report.charts.chart import (
    BEST,
    BLUE,
    CURRENT,
    GREEN,
    GREY,
    OLIVE,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Chart,
    Outcome,
    Table,
    axis,
    bar,
    bound_lines,
    hover,
    line,
    outcome_of,
    scatter,
)
from tuner.report.data import ReportData, Side, by_load
from tuner.report.quantities import VERDICTS, latency_text, metric_text, rate_text
from tuner.report.sentence import change_text, config_text
from tuner.run.trial import Point
from tuner.score.verdict import SloResult

#: Microseconds to the milliseconds of the axes.
MS = 1e-3

#: Batch sizes up to this many each have their place; above it only those that occurred.
MOST_BARS = 32


def sides(data: ReportData) -> Iterator[tuple[str, str, Side]]:
    """(name, colour, side) of the current and the best config, whichever there are."""
    if data.current is not None and data.current.judged is not None:
        yield "current config", CURRENT, data.current
    if data.best is not None and data.best.judged is not None:
        yield data.best_name, BEST, data.best


def latency_slos(data: ReportData) -> dict[str, list[SloResult]]:
    """SLOs by latency metric; ``p99_latency`` without any when no SLO is on a latency."""
    found: dict[str, list[SloResult]] = {}
    for row in data.slo:
        if row.found.metric.endswith("_latency"):
            found.setdefault(row.found.metric, []).append(row.found)
    return found or {"p99_latency": []}


def curves(data: ReportData) -> tuple[Chart, ...]:
    """Latency over throughput for the current and the best config, one chart a latency SLO."""
    shown = list(sides(data))
    if not shown:
        return ()
    return tuple(_curve(metric, slos, shown) for metric, slos in latency_slos(data).items())


def _curve(metric: str, slos: Sequence[SloResult], shown: Sequence[tuple[str, str, Side]]) -> Chart:
    traces, rows, latencies = [], [], []
    for name, color, side in shown:
        repeats = tuple(r.point for r in side.repeats)
        for points, label, mode, symbol in (
            (side.points, name, "lines+markers", "circle"),
            (by_load(repeats), f"{name}, measured again", "markers", "diamond-open"),
        ):
            if not points:
                continue
            y = [value(p, metric) * MS for p in points]
            x = [p.measurement.throughput_infer_per_s for p in points]
            text = [_point_text(label, p) for p in points]
            traces.append(scatter(label, x, y, color=color, text=text, mode=mode, symbol=symbol))
            latencies += y
            rows += [_point_row(label, p, metric) for p in points]
    layout: dict[str, Any] = {
        "xaxis": axis("throughput (infer/s)"),
        "yaxis": axis(f"{metric} (ms)", [*latencies, *(s.bound * MS for s in slos)]),
    }
    bound_lines(layout, slos, MS)
    return Chart(
        name=f"curve-{metric}",
        title=f"Throughput and {metric.replace('_', ' ')}",
        note="Each point is one load; further right and lower is better. A config serves as much "
        "as its last point under the dashed line.",
        figure={"data": traces, "layout": layout},
        table=Table(("config", "load", "throughput", metric, "SLOs"), tuple(rows)),
    )


def _point_text(label: str, point: Point) -> str:
    measurement = point.measurement
    return hover(
        label,
        f"load {measurement.load}",
        f"{rate_text(measurement.throughput_infer_per_s)}",
        f"p50 {latency_text(measurement.p50_latency_us)}, "
        f"p99 {latency_text(measurement.p99_latency_us)}",
        *(_found_text(s) for s in point.slo),
    )


def _found_text(result: SloResult) -> str:
    found = metric_text(result.metric, result.value)
    return f"{result.expression}: {found}, {VERDICTS[result.verdict]}"


def _point_row(label: str, point: Point, metric: str) -> tuple[str, ...]:
    measurement = point.measurement
    verdicts = ", ".join(f"{s.expression} {VERDICTS[s.verdict]}" for s in point.slo)
    return (
        label,
        str(measurement.load),
        rate_text(measurement.throughput_infer_per_s),
        latency_text(value(point, metric)),
        verdicts,
    )


def front(data: ReportData) -> Chart | None:
    """All measured trials by throughput and latency, with the Pareto front."""
    metric, slos = next(iter(latency_slos(data).items()))
    judged = pareto(data, metric)
    if not judged:
        return None
    traces = [_front_line([j for j in judged if j.on_front], metric)]
    for outcome in Outcome:
        members = [j for j in judged if outcome_of(j.trial) is outcome]
        if members:
            traces.append(_front_points(members, outcome, metric))
    shown = [value(j.point, metric) * MS for j in judged] + [s.bound * MS for s in slos]
    layout: dict[str, Any] = {
        "xaxis": axis("throughput (infer/s)"),
        "yaxis": axis(f"{metric} (ms)", shown),
    }
    bound_lines(layout, slos, MS)
    rows = tuple(
        (
            str(j.trial.number),
            change_text(data, j.trial.candidate),
            rate_text(j.point.measurement.throughput_infer_per_s),
            latency_text(value(j.point, metric)),
            "yes" if j.on_front else "",
        )
        for j in judged
    )
    return Chart(
        name="pareto",
        title="All measured configs",
        note="One point a trial, at the load its score stands for. No config beats those on the "
        "line in both directions. Click a point to see the trial.",
        figure={"data": traces, "layout": layout},
        table=Table(("trial", "change", "throughput", metric, "on the front"), rows),
    )


def _front_line(members: Sequence[TrialPoint], metric: str) -> dict[str, Any]:
    x = [j.point.measurement.throughput_infer_per_s for j in members]
    return line("Pareto front", x, [value(j.point, metric) * MS for j in members], GREEN)


def _front_points(members: Sequence[TrialPoint], outcome: Outcome, metric: str) -> dict[str, Any]:
    return scatter(
        outcome.value,
        [j.point.measurement.throughput_infer_per_s for j in members],
        [value(j.point, metric) * MS for j in members],
        color=outcome.color,
        symbol=outcome.symbol,
        text=[
            hover(
                f"trial {j.trial.number}, {outcome.value}",
                *config_text(j.trial.candidate),
                _summary(j.point, metric),
            )
            for j in members
        ],
        customdata=[j.trial.number for j in members],
    )


def _summary(point: Point, metric: str) -> str:
    measurement = point.measurement
    rate = rate_text(measurement.throughput_infer_per_s)
    return f"{rate} at load {measurement.load}, {metric} {latency_text(value(point, metric))}"


#: Parts of a request's time, in order, with their colours.
PARTS = (
    ("client send", PURPLE),
    ("network", SKY),
    ("queue", ORANGE),
    ("compute input", OLIVE),
    ("compute infer", BLUE),
    ("compute output", GREEN),
    ("client receive", RED),
    ("not accounted for", GREY),
)


def parts_us(point: Point) -> dict[str, float]:
    """Microseconds of the average request by part; the rest to the average latency is named."""
    measurement, server = point.measurement, point.measurement.server
    parts = {
        "client send": measurement.client_send_us,
        "network": measurement.network_us,
        "queue": server.queue_us if server else None,
        "compute input": server.compute_input_us if server else None,
        "compute infer": server.compute_infer_us if server else None,
        "compute output": server.compute_output_us if server else None,
        "client receive": measurement.client_recv_us,
    }
    known = {name: us for name, us in parts.items() if us is not None}
    rest = measurement.avg_latency_us - sum(known.values())
    return {**known, "not accounted for": max(rest, 0.0)}


def latency_parts(data: ReportData) -> Chart | None:
    """Where the average request spends its time, current and best config."""
    shown = [(name, side.judged) for name, _, side in sides(data) if side.judged is not None]
    if not any(p.measurement.server for _, p in shown):
        return None
    labels = [f"{name}<br>at {point.measurement.load}" for name, point in shown]
    by_side = [parts_us(point) for _, point in shown]
    traces = [
        bar(
            part,
            [p.get(part, 0.0) * MS for p in by_side],
            labels,
            color,
            orientation="h",
            hovertemplate=f"{part} %{{x:.3g}} ms<extra></extra>",
        )
        for part, color in PARTS
        if any(p.get(part, 0.0) > 0 for p in by_side)
    ]
    layout = {
        "barmode": "stack",
        "xaxis": axis("average time of a request (ms)"),
        "yaxis": {"automargin": True, "autorange": "reversed"},
        "height": 170 + 60 * len(shown),
    }
    rows = tuple(
        (part, *(latency_text(p[part]) if part in p else "-" for p in by_side)) for part, _ in PARTS
    )
    return Chart(
        name="parts",
        title="The average request",
        note="Averages at the load each config is judged at. Much queue and little compute: more "
        "instances or larger batches may help; much compute: they will not.",
        figure={"data": traces, "layout": layout},
        table=Table(("part", *(f"{name} at {p.measurement.load}" for name, p in shown)), rows),
    )


def batches(data: ReportData) -> Chart | None:
    """Batch sizes Triton formed, as shares of its executions."""
    traces, rows = [], []
    for name, color, side in sides(data):
        server = side.judged.measurement.server if side.judged else None
        if server is None or not server.batch_stats:
            continue
        total = sum(count for _, count, _ in server.batch_stats)
        stats = sorted(server.batch_stats)
        shares = [100 * count / total if total else 0.0 for _, count, _ in stats]
        traces.append(
            bar(
                name,
                [str(size) for size, _, _ in stats],
                shares,
                color,
                hovertemplate=f"{name}, batch of %{{x}}: %{{y:.3g}} %<extra></extra>",
            )
        )
        for (size, count, ns), share in zip(stats, shares, strict=True):
            each = latency_text(ns / count / 1000) if count else "-"
            rows.append((name, str(size), f"{count:,}", f"{share:.3g} %", each))
    if not traces:
        return None
    sizes = sorted({int(row[1]) for row in rows})
    if sizes[-1] <= MOST_BARS:
        sizes = list(range(1, sizes[-1] + 1))  # so that gaps show
    layout = {
        "barmode": "group",
        "bargap": max(0.2, 1 - 0.15 * len(sizes)),
        "xaxis": {
            **axis("batch size"),
            "type": "category",
            "categoryarray": [str(s) for s in sizes],
            "categoryorder": "array",
        },
        "yaxis": axis("share of executions (%)"),
    }
    return Chart(
        name="batches",
        title="Batches Triton formed",
        note="What the batcher really did at the load each config is judged at.",
        figure={"data": traces, "layout": layout},
        table=Table(("config", "batch size", "executions", "share", "compute each"), tuple(rows)),
    )
