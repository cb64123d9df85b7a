"""Searches on an emulated model for texts that, as Triton has it, batches only those of one length.

A batch costs a launch, which instances share side by side, and then the device, which one batch has
at a time: so long for each token, the longer the more instances contend for it. So many launches
side by side pay where batches are small, as those of a mix are, and cost where they are large.
"""

from __future__ import annotations

import functools
from collections import deque
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from builders.candidates import fields_of
from builders.emulated import EmulatedBench, a_session
from builders.spaces import BATCH, BATCHER, DELAY, INSTANCES, spec_of
from builders.surface import strategy

from tuner.load.client.figures import Run
from tuner.load.client.job import Answers, Outcome
from tuner.load.setup import LoadTarget, ShapedInputs, Stream, StreamRequests, schedule
from tuner.load.traffic.mixed_shapes.kind import MixedShapes
from tuner.load.traffic.wire import RequestForm
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point
from tuner.score.trial import Trial
from tuner.search.searcher import Searcher
from tuner.search.searching import search
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.model import StrategyName

LAUNCH_S, TOKEN_S, CONTENTION = 0.004, 0.2e-3 / 64, 0.5
NOTHING: Any = None
_AT_ONCE = 20_000.0  # no config answers as many a second


def window_at(level: float) -> Window:
    """Two seconds, or what a verdict on the p99 takes."""
    return Window(max(2.0, 320.0 / level), warmup_s=0.5, deadline_s=60.0, tail_s=0.2)


def texts(shares: dict[int, float]) -> Stream:
    """Requests of these lengths in tokens, with their shares."""
    shapes = tuple(ShapedInputs(NOTHING, f"[{n}]", share) for n, share in shares.items())
    form = RequestForm("m", {}, batched=True, batch_size=1)
    return Stream("m", LoadTarget(Endpoints("h:1", "g:1", None)), form, shapes, StreamRequests("m"))


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
        plan = schedule((self.stream,), load, window, seed, None, (MixedShapes(),))
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
        return Run((self.stream,), answers, plan, load, seed, (MixedShapes(),)).measured(window)[1]

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        self.looks.append((seed, concurrency))
        load = LoadPoint(Arrivals.CLOSED, concurrency)
        return replace(self.reading(_AT_ONCE, seed), load=load)


SPACE = {
    INSTANCES: {"int": [1, 4]},
    BATCH: {"choice": [8, 64]},
    BATCHER: {"choice": [False, True]},
    DELAY: {"choice": [0, 5000]},
}
ONE_LENGTH, MIX = ((64, 1.0),), ((64, 0.7), (256, 0.3))
Lengths = tuple[tuple[int, float], ...]


@functools.cache
def winner(lengths: Lengths) -> Trial:
    """The best trial of a search under texts of these lengths with their shares."""
    space, built = strategy(StrategyName.GP, SPACE, trials=12, min_gain=0.01)
    spec = spec_of(SPACE, budget={"trials": 12})
    plan = LoadPlan(Arrivals.POISSON, None, LevelRange(50.0, 1e4))
    session = a_session(TextsBench(texts(dict(lengths))), spec, space.current, plan)
    trials, _ = search(session, Searcher(space, built))
    return max(trials, key=lambda t: t.score.value if t.score and t.score.feasible else 0.0)


def batching(instances: int) -> Candidate:
    every = strategy(StrategyName.GP, SPACE)[0].enumerate()
    candidates = (c for c in every if fields_of(c)[INSTANCES] == instances)
    return next(c for c in candidates if fields_of(c).get(BATCHER))


def at(level: float, candidate: Candidate, lengths: Lengths) -> Point:
    """Under arrivals that no search has seen."""
    bench = TextsBench(texts(dict(lengths)))
    bench.deploy(candidate)
    return bench.measure(level, seed=99)


def sustained(trial: Trial) -> float:
    assert trial.score is not None
    return trial.score.value


@pytest.mark.long
def test_the_winner_for_a_mix_of_lengths_is_another_than_that_for_one_length() -> None:
    one, mixed = winner(ONE_LENGTH).candidate, winner(MIX).candidate
    assert fields_of(one)[INSTANCES] == 1
    assert fields_of(one)[BATCH] == 64
    assert fields_of(mixed)[INSTANCES] in (3, 4)


@pytest.mark.long
def test_the_winner_for_a_mix_of_lengths_is_15_percent_better_on_it() -> None:
    level = sustained(winner(MIX)) * 0.97
    assert at(level, winner(MIX).candidate, MIX).passed
    assert not at(level / 1.15, winner(ONE_LENGTH).candidate, MIX).passed
    one_length = sustained(winner(ONE_LENGTH)) * 0.97
    assert at(one_length, winner(ONE_LENGTH).candidate, ONE_LENGTH).passed
    assert not at(one_length / 1.15, winner(MIX).candidate, ONE_LENGTH).passed


def test_each_length_has_its_share_and_its_latency() -> None:
    (short, long) = at(400.0, batching(3), MIX).measurement.shapes.values()
    assert long.due_per_s == pytest.approx(0.3 * 400.0)
    assert short.p50_latency_us < long.p50_latency_us
    assert short.p99_latency_us < long.p99_latency_us
