"""Recorded requests: each comes at its recorded time, with the inputs of its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.load.setup import Schedule, Stream, spans_of
from tuner.load.traffic.arrivals import SLACK_S
from tuner.load.traffic.kind import Traffic
from tuner.load.traffic.recordings.contents import RecordedContents
from tuner.load.traffic.recordings.replay import RecordedTraffic, recorded_traffic
from tuner.load.traffic.repeats import Order
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.modelconfig.schema import ModelConfig
from tuner.spec.arrivals import RecordingArrivals
from tuner.spec.workload import StreamSpec, Workload


@dataclass(frozen=True)
class Recordings(Traffic):
    """Recorded requests; see `Traffic`."""

    traffic: RecordedTraffic

    unlike_perf_analyzer = "perf_analyzer does not replay a recording, each request at its time"

    @classmethod
    def in_spec(cls, workload: Workload, _: StreamSpec, __: Mapping[str, ModelConfig]) -> bool:
        return isinstance(workload.arrivals, RecordingArrivals)

    @classmethod
    def of(cls, workload: Workload, streams: Sequence[Stream]) -> Recordings | None:
        models = {stream.name: stream.requests.model for stream in streams}
        traffic = recorded_traffic(workload.arrivals, models)
        return None if traffic is None else cls(traffic)

    def schedule(
        self, streams: Sequence[Stream], load: LoadPoint, window: Window, seed: int
    ) -> Schedule | None:
        """The recorded requests of all streams for this run; an overload is Poisson instead."""
        if load.arrivals is not Arrivals.RECORDING:
            return None
        spans_s = spans_of(window)
        replay = self.traffic.replay(load.level, spans_s, seed)
        meant = replay.due_s < sum(spans_s) - SLACK_S
        lines = replay.lines[meant]
        return Schedule(replay.due_s[meant], self.traffic.order[lines], lines=lines)

    def mark(self, plan: Schedule, streams: Sequence[Stream], spans: Order, seed: int) -> Schedule:
        """Gives each request the shape in its line."""
        if plan.shapes is None or plan.lines is None:
            return plan
        shapes = plan.shapes.copy()
        for number, stream in enumerate(streams):
            for place, inputs in enumerate(shape.inputs for shape in stream.shapes):
                if isinstance(inputs, RecordedContents):
                    shapes[(plan.order == number) & np.isin(plan.lines, inputs.numbers)] = place
        return replace(plan, shapes=shapes)

    def peak(self, load: LoadPoint) -> float:
        return self.traffic.peak if load.arrivals is Arrivals.RECORDING else 1.0
