"""Figures by shape of request, and which shapes shared batches.

Triton's statistics show how large batches were, not which requests were in them. But its batcher
combines requests with different shapes of an input of variable dimensions only if that input has
``allow_ragged_batch`` (GetDynamicShapeInputs in core's dynamic_batch_scheduler.cc), so the config
and the sizes together show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from tuner.measurement.measurement import Figures
from tuner.modelconfig.message import parse
from tuner.record.manifest import Manifest
from tuner.score.judge import SloResult, judge
from tuner.score.point import Point
from tuner.spec.forms import RECORDING, long_form
from tuner.spec.metrics import Scope, parse_metric
from tuner.spec.shapes import mixed_in
from tuner.spec.slo import Slo


@dataclass(frozen=True)
class ShapeFacts:
    """Figures of the requests of one shape, at the load that stands for a config.

    Attributes:
        stream: Name of the stream; "" with one stream.
        share: Share of the stream's requests, as they were due (closed loop: sent), 0..1.
        goodput_infer_per_s: Inferences per second answered within the SLO on the highest
            percentile; None without such an SLO.
        slo: Result of each of the stream's SLOs for these requests alone; decides nothing.
        batched_with: Shapes of requests in the same batches, including this one; empty if each
            request ran alone, None if unknown.
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


def shapes_of(point: Point) -> tuple[ShapeFacts, ...]:
    """Figures by shape from one measurement; empty if all requests have one shape."""
    measured = point.measurement
    return tuple(
        _facts(stream, shape, point, total, of_shape)
        for stream, total in (measured.streams or {"": measured}).items()
        for shape, of_shape in total.shapes.items()
    )


def _facts(stream: str, shape: str, point: Point, total: Figures, of_shape: Figures) -> ShapeFacts:
    bounds = (Slo(parse_metric(r.metric), r.bound) for r in point.slo if r.stream == stream)
    rates = [m.due_per_s or m.sent_per_s or 0.0 for m in (of_shape, total)]
    return ShapeFacts(
        shape=shape,
        stream=stream,
        share=rates[0] / rates[1] if rates[1] else 0.0,
        throughput_infer_per_s=of_shape.throughput_infer_per_s,
        goodput_infer_per_s=of_shape.in_time_infer_per_s,
        p50_latency_us=of_shape.p50_latency_us,
        p90_latency_us=of_shape.p90_latency_us,
        p95_latency_us=of_shape.p95_latency_us,
        p99_latency_us=of_shape.p99_latency_us,
        slo=tuple(
            judge(slo, of_shape, lasting=False)
            for slo in bounds
            if slo.metric.scope is Scope.STREAM
        ),
    )


def with_batches(
    shapes: Sequence[ShapeFacts], point: Point, manifest: Manifest
) -> tuple[ShapeFacts, ...]:
    """Adds the shapes that each shape shared batches with, according to one measurement."""
    return tuple(
        replace(facts, batched_with=_batched_with(facts, shapes, point, manifest))
        for facts in shapes
    )


def _batched_with(
    facts: ShapeFacts, shapes: Sequence[ShapeFacts], point: Point, manifest: Manifest
) -> tuple[str, ...] | None:
    stream = facts.stream or next(iter(manifest.streams))
    label, measured = manifest.streams[stream], point.measurement.of(facts.stream)
    config, server = manifest.models[label], point.measurement.models.get(label)
    if measured is None or server is None or not server.batch_stats or config.is_ensemble:
        return None  # the steps of an ensemble form batches, from tensors of their own
    if max(size for size, *_ in server.batch_stats) <= measured.batch_size:
        return ()
    given = long_form(manifest.spec)["streams"][stream]["inputs"]
    mixed, recorded = mixed_in(given.get("shapes", {})), given["kind"] == RECORDING
    served = parse(config.completed or config.text, config.path)
    unlike = [t for t in served.input if -1 in t.dims and (recorded or t.name in mixed)]
    apart = any(not t.allow_ragged_batch for t in unlike)
    every = tuple(other.shape for other in shapes if other.stream == facts.stream)
    return (facts.shape,) if apart else every
