"""Times of a request by part, and the batches that served it."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.record.bottleneck import times_of
from tuner.report.blocks import Chart, Table
from tuner.report.charts import (
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
from tuner.score.point import Point
from tuner.spec.labels import several
from tuner.spec.units import digits

#: Up to this batch size, the axis has every size; above it, only those that occurred.
MOST_BARS = 32

#: Parts of a request's time, in order, with their colors.
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
    """Microseconds of the average request by part; the rest of its latency is a part too."""
    measurement, server, manifest = point.measurement, point.measurement.server, data.manifest
    client = [u for u in (measurement.client_send_us, measurement.client_recv_us) if u is not None]
    parts = {"client": sum(client) if client else None, "network": measurement.network_us}
    if server is not None:
        stream, label = next(iter(manifest.streams.items()))
        queue_us = server.queue_us
        if manifest.models[label].is_ensemble:  # its steps have queues, but the ensemble has none
            queue_us = sum(time.queue_us for time in times_of(point, manifest, stream))
        parts |= {
            "queue": queue_us,
            "compute input": server.compute_input_us,
            "compute infer": server.compute_infer_us,
            "compute output": server.compute_output_us,
        }
    known = {name: us for name, us in parts.items() if us is not None}
    rest = measurement.avg_answer_us - sum(known.values())
    # An ensemble's network time is what is not compute: it includes its steps' queues.
    for name in ("network", "queue", "compute infer", *known):
        cut = min(known.get(name, 0.0), max(-rest, 0.0))
        known |= {name: known[name] - cut} if cut else {}
        rest += cut
    return {**known, "not accounted for": rest}


def latency_parts(data: ReportData) -> Chart | None:
    """Time of the average request by part, for the current and the best config."""
    points = [(name, point) for name, *_, point in sides(data)]
    if not any(p.measurement.server for _, p in points):
        return None
    labels = [(name, f"at {load_text(point.measurement.load)}") for name, point in points]
    by_side = [parts_us(data, point) for _, point in points]
    lengths = {part: [p.get(part, 0.0) * MS for p in by_side] for part, _ in PARTS}
    parts = [(part, color, lengths[part]) for part, color in PARTS if max(lengths[part]) > 0]
    rows = [(part, *(latency_text(p.get(part)) for p in by_side)) for part, _ in PARTS]
    averages = (latency_text(point.measurement.avg_answer_us) for _, point in points)
    rows.append(("average latency", *averages))
    return Chart(
        name="parts",
        title="The average request",
        note="Averages at the load each config is judged at. Time in the queue may shrink with "
        "more instances or larger batches. Compute may too: a larger batch costs less for each "
        "request, and another instance may use cores or a GPU that are idle.",
        figure=stacked(labels, parts, height_px=170 + 60 * len(points)),
        table=Table(("part", *map(" ".join, labels)), tuple(rows)),
    )


def model_times(data: ReportData) -> Chart | None:
    """Time of the average request by model, for the current and the best config."""
    if len(data.manifest.models) == 1:
        return None
    streams = data.manifest.streams
    by_stream = [
        (stream, time, name, load_text(point.measurement.load))
        for stream in streams
        for name, *_, point in sides(data)
        for time in times_of(point, data.manifest, stream)
        if time.total_us  # an ensemble takes none itself
    ]
    models = list(dict.fromkeys(time.model for _, time, *_ in by_stream))
    by_stream.sort(key=lambda row: ([*streams].index(row[0]), models.index(row[1].model)))
    times = [time for _, time, *_ in by_stream]
    labels = [
        (f"{time.model} for {stream}" if len(streams) > 1 else time.model, f"{name}, at {load}")
        for stream, time, name, load in by_stream
    ]
    parts = [
        ("queue", ORANGE, [time.queue_us * MS for time in times]),
        ("compute", BLUE, [time.compute_us * MS for time in times]),
    ]
    rows = tuple(
        (", ".join(label), latency_text(time.queue_us), latency_text(time.compute_us))
        for time, label in zip(times, labels, strict=True)
    )
    return Chart(
        name="models",
        title="The average request, model by model",
        note="Averages at the load each config is judged at, times how often a request calls the "
        "model. Time that a model waits for others counts as theirs. The longest bar is the "
        "bottleneck: if it queues, more of its instances or larger batches may help.",
        figure=stacked(labels, parts, height_px=150 + 44 * len(rows)),
        table=Table(("model and config", "queue", "compute"), rows),
    )


def batches(data: ReportData) -> Sequence[Chart]:
    """Batch sizes that Triton formed, one chart per model."""
    charts = (_batches(data, number, label) for number, label in enumerate(data.computing))
    return [chart for chart in charts if chart is not None]


def _batches(data: ReportData, number: int, label: str) -> Chart | None:
    """Batch sizes of one model, as shares of its executions."""
    models = data.manifest.models
    traces, rows = [], []
    for name, color, _, point in sides(data):
        server = point.measurement.models.get(label)
        if server is None or not server.batch_stats:
            continue
        total = sum(count for _, count, _ in server.batch_stats)
        stats = sorted(server.batch_stats)
        shares = [100 * count / total if total else 0.0 for _, count, _ in stats]
        hover_text = f"{name}, batch of %{{x}}: %{{y:.3g}}%<extra></extra>"
        x = [str(size) for size, _, _ in stats]
        traces.append(bar(name, x, shares, color, hovertemplate=hover_text))
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
