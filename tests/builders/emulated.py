"""One emulated bench for all unit tests: what is measured depends on config, load, seed and server.

As in production: every server is a little faster or slower than the last one (``noise``), the
arrivals of a seed are kinder or harder to all configs alike (``weather``), a config that is asked
too much saturates and answers late, and one that Triton refuses is refused when it is deployed.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from builders.candidates import candidate_of, fields_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server

from tuner.errors import ClientLimitError, DeployRefusedError
from tuner.load.probes.answers import Answer, ConfigAnswers
from tuner.load.probes.overload import Overload
from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement
from tuner.measurement.window import Window
from tuner.meter.evaluate import ClientCeiling
from tuner.meter.session import Session
from tuner.prepare.job import Job
from tuner.prepare.timebook import TimeBook
from tuner.progress.events import Silent
from tuner.reason import Reason
from tuner.score.next_load import LoadPlan, load_plan
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec
from tuner.spec.paths import DELAY
from tuner.spec.slo import Slo
from tuner.triton.changes import DeploymentKind

#: What arrivals do to the capacity where a test says nothing about it, as a share.
WEATHER = 0.001


@dataclass(frozen=True)
class MeasuredLoad:
    """One requested measurement, with the server it was made on (counted from 1)."""

    candidate: Candidate
    level: float
    seed: int
    server: int


class EmulatedBench:
    """Serves each candidate up to its capacity.

    Args:
        capacity: Requests per second (clients in a closed loop) of each candidate; one that is not
            listed is refused by the server.
        noise: Standard deviation of the capacity from server to server, as a share.
        weather: How much the arrivals of a seed move all candidates together, as a share.
        seed: Of the servers' luck.
        troubles: What goes wrong when a candidate is deployed, once each.
        lasting: What of a capacity lasts longer than a window, as a share.
        sends: What the load generator can send, in requests per second.

    Attributes:
        serves: The capacity of the server that is there now.
        loads: Every measurement.
        idle: Those at a tenth of the load.
        deployed: Every candidate, with whether a fresh server was demanded.
        looks: Seeds of the quick looks, and how many requests at once.
        given_up: Reasons for which trials were lost.
    """

    def __init__(
        self,
        capacity: Mapping[Candidate, float] | Callable[[Candidate], float],
        *,
        noise: float = 0.0,
        weather: float = WEATHER,
        seed: int = 0,
        slos: Sequence[Slo] = (P99_40MS, NO_ERRORS),
        arrivals: Arrivals = Arrivals.POISSON,
        troubles: Mapping[Candidate, list[Exception]] | None = None,
        alone_s: float = 0.01,
        lasting: float = 1.0,
        sends: float = math.inf,
    ) -> None:
        self.capacity = capacity
        self.noise, self.weather = noise, weather
        self.random = random.Random(seed)
        self.slos, self.arrivals = slos, arrivals
        self.troubles = troubles or {}
        self.alone_s, self.lasting = alone_s, lasting
        self.sends, self.sendable = sends, ClientCeiling()
        self.answer: Mapping[Candidate, float] = {}
        self.candidate = candidate_of({})
        self.serves = 0.0
        self.loads: list[MeasuredLoad] = []
        self.idle: list[MeasuredLoad] = []
        self.deployed: list[tuple[Candidate, bool]] = []
        self.in_production: list[Candidate] = []
        self.looks: list[tuple[int, int]] = []
        self.overloads: list[MeasuredLoad] = []
        self.soaks: list[MeasuredLoad] = []
        self.given_up: list[Reason] = []

    batch_calls: tuple[BatchCall, ...] = ()

    def enter(self, stage: object) -> None:
        pass

    def warm_up(self, candidate: Candidate, texts: object) -> None:
        """None of its configs is slow at first."""

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> Any:
        self.deployed.append((candidate, fresh))
        self.in_production += [candidate] * in_production
        if self.troubles.get(candidate):
            raise self.troubles[candidate].pop(0)
        self.serves = self.capacity_of(candidate) * self.luck()
        self.candidate = candidate
        return SimpleNamespace(kind=DeploymentKind.RELOAD if fresh else DeploymentKind.IN_PLACE)

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.loads.append(self._load(level, seed))
        if level > self.sends:
            error = ClientLimitError(f"could not keep up with {level:g}/s", "", self.sends)
            self.sendable.fell_behind(error, level)
            raise error
        self.sendable.kept_up(level)
        return judge_point(self.slos, replace(self.reading(level, seed), seed=seed))

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        self.soaks.append(self._load(level, seed))
        reading = self.reading(level / self.lasting, seed)
        load = replace(reading.load, level=level)
        served = min(level, reading.throughput_infer_per_s * self.lasting)
        if not self.arrivals.open_loop:
            served = reading.throughput_infer_per_s
        reading = replace(reading, load=load, throughput_infer_per_s=served, duration_s=30.0)
        return judge_point(self.slos, replace(reading, seed=seed))

    def once(self, level: float, seed: int, window: Window) -> Point:
        self.idle.append(self._load(level, seed))
        measurement = self.reading(level / self.lasting, seed)
        measurement = replace(measurement, load=replace(measurement.load, level=level))
        return judge_point(self.slos, replace(measurement, seed=seed, duration_s=window.duration_s))

    def reading(self, level: float, seed: int) -> Measurement:
        """What the load generator tells of the candidate there; tests may know better."""
        capacity = self.serves * self.kindness(seed)
        if not self.arrivals.open_loop:
            p99_us = 40e3 * level / capacity
            return synthetic_measurement(level, p99_us, served=10.0 * level, arrivals=self.arrivals)
        return synthetic_server(level, capacity)

    def lost(self, reason: Reason) -> None:
        self.given_up.append(reason)

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        self.looks.append((seed, 1))
        return {"": self.alone_s}

    def many_at_once(self, concurrency: int, seed: int) -> float:
        return self.saturate(concurrency, seed).requests_per_s

    def saturate(self, concurrency: int, seed: int, least_s: float = 0.0) -> Measurement:
        self.looks.append((seed, concurrency))
        rate = 1.1 * self.serves
        load = LoadPoint(Arrivals.CLOSED, concurrency)
        return replace(synthetic_server(rate, rate), load=load, throughput_infer_per_s=rate)

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload:
        self.overloads.append(self._load(capacity, seed))
        return an_overload(capacity, slo)

    def answers(self) -> Mapping[str, ConfigAnswers]:
        return {"": saying(self.answer.get(self.candidate, 1.0))}

    def capacity_of(self, candidate: Candidate) -> float:
        if callable(self.capacity):
            return self.capacity(candidate)
        if candidate not in self.capacity:
            raise DeployRefusedError("out of memory")
        return self.capacity[candidate]

    def luck(self) -> float:
        """Of the server that is started now."""
        return 1.0 + self.random.gauss(0.0, self.noise)

    def kindness(self, seed: int) -> float:
        """Of the arrivals that a seed makes, the same for all configs."""
        return 1.0 + self.weather * random.Random(seed).uniform(-1.0, 1.0)

    @property
    def seeds(self) -> list[int]:
        return [a.seed for a in self.loads]

    def _load(self, level: float, seed: int) -> MeasuredLoad:
        return MeasuredLoad(self.candidate, level, seed, len(self.deployed))


def a_session(
    bench: Any, spec: Spec, current: Candidate, plan: LoadPlan | None = None, **more: Any
) -> Session:
    """Of a model without files, all of whose configs Triton loads."""
    space: Any = SimpleNamespace(
        current=current, violations=lambda _: (), alike=operator.eq, leaves=lambda _: True
    )
    space.queue_delay_us = lambda candidate: float(fields_of(candidate).get(DELAY) or 0)  # type: ignore[arg-type]
    space.only_schedules = False
    space.size = lambda: SimpleNamespace(count=6)
    nothing: Any = None
    plan = plan or load_plan(spec.workload, spec.objective)
    job = Job(nothing, spec, known_space=space, plan=plan)
    followed = {"events": Silent(), "book": TimeBook(), "checkpoint": lambda: None, **more}
    return Session(job, bench, **followed)


class FreshBench(EmulatedBench):
    """For rounds, which are never measured on a server that has served another config."""

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        assert self.deployed[-1] == (self.candidate, True)
        return super().measure(level, seed, least_s)


def saying(value: float) -> ConfigAnswers:
    return ConfigAnswers(alone=(Answer({"y": np.array([value])}),))


def an_overload(capacity: float, slo: Slo = P99_40MS) -> Overload:
    return Overload(capacity, 1.2 * capacity, 2.0, 4.0, str(slo), 40e3, 9.0, 1e4, 0, 0, 0, ())
