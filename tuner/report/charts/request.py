"""How a request's time is spent, and the batches it was served in."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape, unescape

from tuner.report.blocks import Chart, Table
from tuner.report.charts.chart import (
    BLUE,
    GREEN,
    GREY,
    MS,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    axis,
    bar,
    sides,
    stacked,
)
from tuner.report.data import ReportData
from tuner.report.quantities import NOTHING, latency_text, load_text
from tuner.run.bottleneck import times_of
from tuner.score.point import Point
from tuner.spec.labels import several
from tuner.spec.units import digits

#: Batch sizes up to this many each have their place; above it only those that occurred.
MOST_BARS = 32

#: Parts of a request's time, in order, with their colours.
PARTS = (
    ("client", PURPLE),
    ("network", GREEN),
    ("queue", ORANGE),
    ("compute input", SKY),
    ("compute infer", BLUE),
    ("compute output", RED),
    ("not accounted for", GREY),
)


def parts_us(data: ReportData, point: Point) -> dict[str, float]:
    """Microseconds of the average request by part; what is left of its latency is a part too."""
    measurement, server = point.measurement, point.measurement.server
    client = (measurement.client_send_us, measurement.client_recv_us)
    parts = {
        "client": sum(sent) if (sent := [us for us in client if us is not None]) else None,
        "network": measurement.network_us,
        "queue": _queue_us(data, point),
        "compute input": server.compute_input_us if server else None,
        "compute infer": server.compute_infer_us if server else None,
        "compute output": server.compute_output_us if server else None,
    }
    known = {name: us for name, us in parts.items() if us is not None}
    rest = measurement.avg_latency_us - sum(known.values())
    return {**known, "not accounted for": max(rest, 0.0)}


def _queue_us(data: ReportData, point: Point) -> float | None:
    """The queue time; for an ensemble, which has no queue of its own, that of its steps."""
    server, (stream, *_) = point.measurement.server, data.manifest.streams
    if server is None or not data.manifest.models[data.manifest.streams[stream]].is_ensemble:
        return server.queue_us if server else None
    return sum(time.queue_us for time in times_of(point, data.manifest, stream))


def latency_parts(data: ReportData) -> Chart | None:
    """How the average request spends its time, current and best config."""
    shown = [(name, side.judged) for name, _, side in sides(data) if side.judged is not None]
    if not any(p.measurement.server for _, p in shown):
        return None
    labels = [f"{name}<br>at {load_text(point.measurement.load)}" for name, point in shown]
    by_side = [parts_us(data, point) for _, point in shown]
    parts = [
        (part, color, [p.get(part, 0.0) * MS for p in by_side])
        for part, color in PARTS
        if any(p.get(part, 0.0) > 0 for p in by_side)
    ]
    rows = [
        (part, *(latency_text(p[part]) if part in p else NOTHING for p in by_side))
        for part, _ in PARTS
    ]
    averages = (latency_text(point.measurement.avg_latency_us) for _, point in shown)
    rows.append(("average latency", *averages))
    return Chart(
        name="parts",
        title="The average request",
        note="Averages at the load each config is judged at. Time in the queue may shrink with "
        "more instances or larger batches. Compute may too: a larger batch costs less for each "
        "request, and another instance may use cores or a GPU that are idle.",
        figure=stacked(labels, parts, height=170 + 60 * len(shown)),
        table=Table(("part", *(label.replace("<br>", " ") for label in labels)), tuple(rows)),
    )


def model_times(data: ReportData) -> Chart | None:
    """How the average request spends its time, model by model, current and best config."""
    if len(data.manifest.models) == 1:
        return None
    streams = data.manifest.streams
    found = [
        (stream, time, name, load_text(side.judged.measurement.load))
        for stream in streams
        for name, _, side in sides(data)
        if side.judged is not None
        for time in times_of(side.judged, data.manifest, stream)
        if time.total_us  # an ensemble itself takes none
    ]
    models = list(dict.fromkeys(time.model for _, time, *_ in found))
    found.sort(key=lambda row: ([*streams].index(row[0]), models.index(row[1].model)))
    rows = [
        (time, f"{escape(' for '.join(whose), quote=False)}<br>{name}, at {load}")
        for stream, time, name, load in found
        for whose in [(time.model, stream) if len(streams) > 1 else (time.model,)]
    ]
    labels = [label for _, label in rows]
    parts = [
        ("queue", ORANGE, [time.queue_us * MS for time, _ in rows]),
        ("compute", BLUE, [time.compute_us * MS for time, _ in rows]),
    ]
    cells = tuple(
        (unescape(label.replace("<br>", ", ")), *map(latency_text, (t.queue_us, t.compute_us)))
        for t, label in rows
    )
    return Chart(
        name="models",
        title="The average request, model by model",
        note="Averages at the load each config is judged at, times how often a request calls the "
        "model. Time that a model waits for others counts as theirs. The longest bar is the "
        "bottleneck: if it queues, more of its instances or larger batches may help.",
        figure=stacked(labels, parts, height=150 + 44 * len(rows)),
        table=Table(("model and config", "queue", "compute"), cells),
    )


def batches(data: ReportData) -> Sequence[Chart]:
    """Batch sizes Triton formed, one chart per model."""
    charts = (_batches(data, number, label) for number, label in enumerate(data.computing))
    return [chart for chart in charts if chart is not None]


def _batches(data: ReportData, number: int, label: str) -> Chart | None:
    """Batch sizes of one model, as shares of its executions."""
    models = data.manifest.models
    traces, rows = [], []
    for name, color, side in sides(data):
        server = side.judged.measurement.models.get(label) if side.judged else None
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
                hovertemplate=f"{name}, batch of %{{x}}: %{{y:.3g}}%<extra></extra>",
            )
        )
        for (size, count, ns), share in zip(stats, shares, strict=True):
            each = latency_text(ns / count / 1000) if count else NOTHING
            rows.append((name, str(size), f"{count:,}", f"{digits(share)}%", each))
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
        name=f"batches-{number}" if several(models) else "batches",
        title="Batches Triton formed" + (f": {label}" if several(models) else ""),
        note="What the batcher actually did at the load each config is judged at.",
        figure={"data": traces, "layout": layout},
        table=Table(("config", "batch size", "executions", "share", "compute each"), tuple(rows)),
    )
