"""What the requests of each shape got, and with which others they shared batches.

Triton's statistics tell how large batches were, not what was in them. But its batcher puts unlike
shapes of an input of open dimensions into one batch only where that has ``allow_ragged_batch``
(GetDynamicShapeInputs in core's dynamic_batch_scheduler.cc), so the sizes tell the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from tuner.measurement.measurement import Measurement
from tuner.modelconfig.message import parse
from tuner.record.manifest import Manifest
from tuner.score.judge import SloResult, Verdict, judge, severity
from tuner.score.point import Point
from tuner.spec.forms import long_form
from tuner.spec.metrics import Scope, parse_metric
from tuner.spec.shapes import mixed_in
from tuner.spec.slo import Slo


@dataclass(frozen=True)
class ShapeFacts:
    """What the requests of one shape got: the worst of the measurements.

    Attributes:
        stream: Whose requests, of several; else "".
        share: Of the stream's requests, as they were due (closed loop: sent).
        goodput_infer_per_s: Answered within the SLO on the highest percentile; None without one.
        slo: Each SLO of the stream, held against these requests alone; that decides nothing.
        batched_with: Shapes of requests in the same batches, its own too; empty where each request
            ran alone, None where that is not known.
    """

    shape: str
    stream: str
    share: float
    throughput_infer_per_s: Annotated[float, Field(ge=0)]
    goodput_infer_per_s: float | None
    p50_latency_us: float
    p90_latency_us: float
    p95_latency_us: float
    p99_latency_us: float
    slo: tuple[SloResult, ...]
    batched_with: tuple[str, ...] | None = None


def shapes_of(points: Sequence[Point]) -> tuple[ShapeFacts, ...]:
    """Those of all measurements of a config; empty where all requests have one shape."""
    last = points[-1].measurement
    return tuple(
        _facts(stream, shape, points)
        for stream in last.streams or ("",)
        for shape in (last.of(stream) or last).shapes
    )


def _facts(stream: str, shape: str, points: Sequence[Point]) -> ShapeFacts:
    found = [*_found(stream, shape, points)]
    own = [measured for _, measured, _ in found]
    results = (_judged(point, stream, measured) for point, measured, _ in found)
    goodputs = [m.in_time_infer_per_s for m in own if m.in_time_infer_per_s is not None]
    return ShapeFacts(
        shape=shape,
        stream=stream,
        share=sum(share for *_, share in found) / len(found),
        throughput_infer_per_s=min(m.throughput_infer_per_s for m in own),
        goodput_infer_per_s=min(goodputs, default=None),
        p50_latency_us=max(m.p50_latency_us for m in own),
        p90_latency_us=max(m.p90_latency_us for m in own),
        p95_latency_us=max(m.p95_latency_us for m in own),
        p99_latency_us=max(m.p99_latency_us for m in own),
        slo=tuple(map(_worst, zip(*results, strict=True))),
    )


def _worst(results: Sequence[SloResult]) -> SloResult:
    """The worst that had enough data, if any had: a shape has only a part of the requests."""
    decided = [r for r in results if r.verdict is not Verdict.NOT_ENOUGH_DATA]
    return min(decided or results, key=severity)


def _found(
    stream: str, shape: str, points: Sequence[Point]
) -> Iterator[tuple[Point, Measurement, float]]:
    """Each point with the figures of the shape, and its share."""
    for point in points:
        whole = point.measurement.of(stream)
        own = None if whole is None else whole.shapes.get(shape)
        if whole is not None and own is not None:
            parts = (own.due_per_s or own.sent_per_s), (whole.due_per_s or whole.sent_per_s)
            yield point, own, (parts[0] or 0.0) / (parts[1] or 1.0)


def _judged(point: Point, stream: str, measured: Measurement) -> list[SloResult]:
    bounds = (Slo(parse_metric(r.metric), r.bound) for r in point.slo if r.stream == stream)
    of_requests = (slo for slo in bounds if slo.metric.scope is Scope.STREAM)
    return [judge(slo, measured, lasting=False) for slo in of_requests]


def with_batches(
    shapes: Sequence[ShapeFacts], point: Point, manifest: Manifest
) -> tuple[ShapeFacts, ...]:
    """Adds what each shape was batched with, by what one measurement shows."""
    return tuple(
        replace(own, batched_with=_batched_with(own, shapes, point, manifest)) for own in shapes
    )


def _batched_with(
    own: ShapeFacts, shapes: Sequence[ShapeFacts], point: Point, manifest: Manifest
) -> tuple[str, ...] | None:
    stream = own.stream or next(iter(manifest.streams))
    label, measured = manifest.streams[stream], point.measurement.of(own.stream)
    config, server = manifest.models[label], point.measurement.models.get(label)
    if measured is None or server is None or not server.batch_stats or config.is_ensemble:
        return None  # of an ensemble the steps form batches, of tensors of their own
    if max(size for size, *_ in server.batch_stats) <= measured.batch_size:
        return ()
    given = long_form(manifest.spec).data["streams"][stream]["inputs"].get("shapes", {})
    mixed, served = mixed_in(given), parse(config.completed or config.text, config.path)
    apart = any(t.name in mixed and -1 in t.dims and not t.allow_ragged_batch for t in served.input)
    every = tuple(other.shape for other in shapes if other.stream == own.stream)
    return (own.shape,) if apart else every
