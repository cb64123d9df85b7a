"""Streams with requests of several shapes, each shape with its share and its own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tuner.errors import LoadFailedError, ModelFailsError
from tuner.load import seeds
from tuner.load.client.figures import Run, observe
from tuner.load.latency import Observed
from tuner.load.setup import Schedule, Stream
from tuner.load.traffic.kind import Traffic
from tuner.load.traffic.repeats import Order
from tuner.load.traffic.turns import by_chance
from tuner.measurement.measurement import Figures
from tuner.measurement.window import Window
from tuner.modelconfig.schema import ModelConfig
from tuner.sentences import failed
from tuner.spec.slo import Slo
from tuner.spec.workload import RandomInputs, StreamSpec, Workload


class MixedShapes(Traffic):
    """Requests of several shapes; see `Traffic`."""

    unlike_perf_analyzer = "perf_analyzer does not draw shapes by share, or measure them separately"

    @classmethod
    def in_spec(cls, _: Workload, stream: StreamSpec, __: Mapping[str, ModelConfig]) -> bool:
        return isinstance(stream.inputs, RandomInputs) and len(stream.inputs.request_shapes) > 1

    @classmethod
    def of(cls, _: Workload, streams: Sequence[Stream]) -> MixedShapes | None:
        return cls() if any(len(stream.shapes) > 1 for stream in streams) else None

    def mark(self, plan: Schedule, streams: Sequence[Stream], spans: Order, seed: int) -> Schedule:
        """Draws the shape of each request; streams do not affect each other's draws."""
        shapes = np.zeros_like(plan.order)
        for number, stream in enumerate(streams):
            mine, stream_seed = plan.order == number, seeds.of_stream(seed, stream.name, streams)
            counts = np.bincount(spans[mine])
            shapes[mine] = by_chance([s.share for s in stream.shapes], counts.tolist(), stream_seed)
        return replace(plan, shapes=shapes)

    def figures(
        self, run: Run, number: int, window: Window, observed: Observed, measured: Figures
    ) -> Figures:
        """Adds the figures of each of a stream's shapes; no SLO applies to a single shape.

        Raises:
            ModelFailsError: The model failed all requests of one shape.
        """
        stream, shapes = run.streams[number], dict[str, Figures]()
        bounds = window.of(stream.name).bounds
        window = replace(window, bounds=(), slice_s=None)
        for k, shape in enumerate(stream.shapes if len(stream.shapes) > 1 else ()):
            part = run.part([number], k)
            try:
                seen = observe(part, window, (), run.begun_ns, observed.quiet)
            except ModelFailsError as error:
                reason = error.reason.of(f"of shape {shape.name}")
                raise failed(ModelFailsError, reason) from error
            except LoadFailedError:  # none was due or answered in the part that counts
                continue
            of_shape = run.of_stream(seen, part, stream, window)
            load = replace(of_shape.load, level=of_shape.load.level * shape.share)
            in_time = _in_time_per_s(of_shape, bounds)
            shapes[shape.name] = replace(of_shape, load=load, in_time_infer_per_s=in_time)
        return replace(measured, shapes=shapes)


def _in_time_per_s(of_shape: Figures, bounds: Sequence[Slo]) -> float | None:
    """Inferences per second answered within the bound on the highest percentile."""
    if not bounds or of_shape.latencies_us is None:
        return None
    tail = max(bounds, key=lambda bound: (bound.share, -bound.within_s))
    count = of_shape.latencies_us.searchsorted(tail.within_s * 1e6, side="right")
    return float(count) * of_shape.batch_size / of_shape.duration_s
