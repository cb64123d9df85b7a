"""A kind of traffic that `tuner` does not know: each request is sent twice, on an even clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.load.client.calls import Done
from tuner.load.client.figures import Run
from tuner.load.client.job import Answers, Outcome, ProcessPart
from tuner.load.latency import Observed
from tuner.load.setup import Schedule, Stream, on_one_clock
from tuner.load.traffic.kind import CallerJob, Traffic
from tuner.measurement.measurement import Figures, LoadPoint
from tuner.measurement.window import Window
from tuner.modelconfig.schema import ModelConfig
from tuner.reason import Reason
from tuner.spec.workload import StreamSpec, Workload

COPIES = 2
WARNING = Reason.of_text("Each request was sent twice.")


class Twins(Traffic):
    """All streams have it."""

    unlike_perf_analyzer = "perf_analyzer sends each request once"

    @classmethod
    def in_spec(cls, _: Workload, __: StreamSpec, ___: Mapping[str, ModelConfig]) -> bool:
        return True

    @classmethod
    def of(cls, _: Workload, __: Sequence[Stream]) -> Twins:
        return cls()

    def schedule(
        self, streams: Sequence[Stream], load: LoadPoint, window: Window, seed: int
    ) -> Schedule:
        return on_one_clock(
            [np.arange(0.0, window.total_s, 1.0 / one.load(load).level) for one in streams]
        )

    def caller(self, streams: Sequence[Stream], window: Window) -> CallerJob:
        return CallerJob("builders.toy_traffic:twin_calls", {"copies": COPIES})

    def figures(
        self, run: Run, number: int, window: Window, observed: Observed, figures: Figures
    ) -> Figures:
        """Counts the inferences of both."""
        return replace(figures, throughput_infer_per_s=COPIES * figures.throughput_infer_per_s)

    def warnings(self, answers: Answers) -> Iterator[str]:
        yield WARNING


class TwinCalls:
    """A request is answered when all of its copies are."""

    def __init__(self, calls: Any, copies: int) -> None:
        self._calls, self._copies = calls, copies
        self.connect, self.drain, self.close = calls.connect, calls.drain, calls.close
        self.account = calls.account

    def send(self, request: bytes, done: Done) -> None:
        left = self._copies

        def one(outcome: Outcome, words: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                done(outcome, words)

        for _ in range(self._copies):
            self._calls.send(request, one)


def twin_calls(part: ProcessPart, facts: Mapping[str, Any]) -> TwinCalls:
    return TwinCalls(part.calls(), facts["copies"])
