"""An emulated model for texts that, as Triton has it, batches only those of one length.

A batch costs a launch, which instances share side by side, and then the device, which one batch has
at a time: so long for each token, the longer the more instances contend for it. Nothing here is
measured.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt
from builders.candidates import fields_of
from builders.emulated import EmulatedBench
from builders.spaces import BATCH, BATCHER, DELAY, INSTANCES

from tuner.load.client.figures import Run
from tuner.load.client.job import Answers, Outcome
from tuner.load.setup import LoadTarget, ShapedInputs, Stream, schedule
from tuner.load.traffic.encoding import RequestForm
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate

LAUNCH_S, TOKEN_S, CONTENTION = 0.004, 0.2e-3 / 64, 0.5
NOTHING: Any = None
_AT_ONCE = 20_000.0  # no config answers as many a second


def window_at(level: float) -> Window:
    """Two seconds, or what a verdict on the p99 takes."""
    return Window(max(2.0, 320.0 / level), warmup_s=0.5, deadline_s=60.0, tail_s=0.2)


def texts(shares: dict[int, float]) -> Stream:
    """Requests of these lengths in tokens, with their shares."""
    shapes = tuple(ShapedInputs(NOTHING, f"[{n}]", share) for n, share in shares.items())
    form = RequestForm("m", {}, {}, batched=True, batch_size=1)
    return Stream("m", LoadTarget("m", Endpoints("h:1", "g:1", None)), form, shapes)


@dataclass(frozen=True)
class ServedTexts:
    """What the emulated scheduler knows of a config."""

    instances: int
    most: int
    delay_s: float

    @classmethod
    def of(cls, candidate: Candidate) -> ServedTexts:
        fields: Any = fields_of(candidate)
        most = int(fields.get(BATCH) or 16) if fields.get(BATCHER) else 1
        return cls(int(fields.get(INSTANCES) or 1), most, (fields.get(DELAY) or 0) / 1e6)

    def answered_s(self, due_s: npt.NDArray[np.float64], tokens: list[int]) -> list[float]:
        """When each request is answered."""
        answers, waiting = [0.0] * len(tokens), deque[int]()
        events: list[tuple[float, int, list[int]]] = [(t, k, []) for k, t in enumerate(due_s)]
        idle, device_free_s = self.instances, 0.0
        slower = 1.0 + CONTENTION * (self.instances - 1)
        while events:
            now, number, batch = heappop(events)
            if batch:
                idle += 1
            elif number >= 0:
                waiting.append(number)
            while idle and waiting and (size := self._size(waiting, tokens, now, due_s)):
                batch = [waiting.popleft() for _ in range(size)]
                busy_s = slower * TOKEN_S * sum(tokens[k] for k in batch)
                device_free_s = max(device_free_s, now + LAUNCH_S) + busy_s
                for k in batch:
                    answers[k] = device_free_s
                heappush(events, (device_free_s, -1, batch))
                idle -= 1
            if idle and waiting and self.delay_s:
                heappush(events, (float(due_s[waiting[0]]) + self.delay_s, -1, []))
        return answers

    def _size(self, waiting: deque[int], tokens: list[int], now: float, due_s: Any) -> int:
        """How many of one length go now; 0: more are waited for.

        A length unlike the first ends the batch, and with it the wait.
        """
        size = 0
        for k in waiting:
            if tokens[k] != tokens[waiting[0]] or size == self.most:
                return size
            size += 1
        full = size == self.most or now - due_s[waiting[0]] >= self.delay_s - 1e-9
        return size if full else 0


class TextsBench(EmulatedBench):
    """Serves a stream of texts; the figures are the product's own, from emulated time stamps."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(lambda _: 1.0)
        self.stream = stream

    def reading(self, level: float, seed: int) -> Measurement:
        load, window = LoadPoint(Arrivals.POISSON, level), window_at(level)
        plan = schedule((self.stream,), load, window, seed, None)
        assert plan.due_s is not None
        lengths = [int(shape.name[1:-1]) for shape in self.stream.shapes]
        tokens = [lengths[k] for k in plan.shape_of_each().tolist()]
        answered_s = np.array(ServedTexts.of(self.candidate).answered_s(plan.due_s, tokens))
        in_time, begin_ns = answered_s < window.total_s, 10**18
        sent_ns, answered_ns = (begin_ns + np.rint(1e9 * s) for s in (plan.due_s, answered_s))
        answers = Answers(
            np.arange(plan.due_s.size),
            sent_ns.astype(np.int64),
            np.where(in_time, answered_ns, 0).astype(np.int64),
            np.where(in_time, Outcome.ANSWERED, Outcome.UNANSWERED).astype(np.int8),
            begin_ns + round(1e9 * window.total_s),
            busy=0.0,
            cpu_s=0.0,
            failure="",
            lost="",
        )
        return Run((self.stream,), answers, plan, load, seed).measured(window)[1]

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        self.looks.append((seed, concurrency))
        load = LoadPoint(Arrivals.CLOSED, concurrency)
        return replace(self.reading(_AT_ONCE, seed), load=load)
