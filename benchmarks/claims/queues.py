"""SIMULATED servers of known truth: small queues, and the bench of `tune run` over them.

No server is started. Arrivals, windows, verdicts and capacities are those of the real code; only
the answers come from queues whose service times are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from tuner.load.latency import AnsweredRequests, figures_of, observe_open
from tuner.load.traffic.arrivals import arrivals_of
from tuner.measurement.measurement import Arrivals, LoadPoint, Measurement, Stage
from tuner.measurement.window import BRIEF, Window, soak_for, window_for
from tuner.meter.evaluate import ClientCeiling
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.metrics import P99_LATENCY
from tuner.spec.slo import Slo

Times = npt.NDArray[np.float64]

LONG_RUN = 120_000
WINDOW_S = 3.0
#: How much single service times vary, and how many long runs determine the truth.
JITTER, TRUTHS = 0.03, 4
ALLOWED = 0.01


@dataclass(frozen=True)
class Server:
    """A queue: ``instances`` serve up to ``most`` requests at once in ``base_s`` + n ``per_s``."""

    base_s: float
    per_s: float = 0.0
    instances: int = 1
    most: int = 1
    p99_s: float = 0.04

    @property
    def saturation(self) -> float:
        return self.instances * self.most / (self.base_s + self.most * self.per_s)

    def answered_s(self, due_s: Times, rng: np.random.Generator, slower: float = 1.0) -> Times:
        """When each request is answered, first come, first served."""
        if self.most > 1:
            return self._batched(due_s, rng, slower)
        answers = np.empty_like(due_s)
        # Equal instances take turns, since service times are nearly equal.
        for one in range(self.instances):
            turns = slice(one, None, self.instances)
            due = due_s[turns]
            service = slower * self.base_s * (1.0 + JITTER * rng.standard_normal(due.size))
            done = np.cumsum(service)
            answers[turns] = done + np.maximum.accumulate(due - (done - service))
        return answers

    def _batched(self, due_s: Times, rng: np.random.Generator, slower: float) -> Times:
        answers, due, first, free_s = np.empty_like(due_s), due_s.tolist(), 0, 0.0
        while first < len(due):
            free_s, behind = max(free_s, due[first]), first + 1
            while behind < min(first + self.most, len(due)) and due[behind] <= free_s:
                behind += 1
            work_s = slower * (self.base_s + (behind - first) * self.per_s)
            free_s += work_s * (1.0 + JITTER * float(rng.standard_normal()))
            answers[first:behind] = free_s
            first = behind
        return answers


SERVERS: Mapping[str, Server] = {
    "unbatched 6.5 ms, p99 <= 40 ms": Server(6.5e-3, p99_s=0.04),
    "unbatched 6.5 ms, p99 <= 100 ms": Server(6.5e-3, p99_s=0.1),
    "batches to 8 of 20 + 5n ms, p99 <= 200 ms": Server(20e-3, 5e-3, most=8, p99_s=0.2),
    "4 x 5 ms (800/s), p99 <= 1 s": Server(5e-3, instances=4, p99_s=1.0),
    "quickstart: batches to 32 of 5 + 0.25n ms, p99 <= 40 ms": Server(
        5e-3, 0.25e-3, most=32, p99_s=0.04
    ),
    "batches to 64 of 1 + 0.03n ms (22,000/s), p99 <= 10 ms": Server(
        1e-3, 0.03e-3, most=64, p99_s=0.01
    ),
    "unbatched 250 ms, p99 <= 2 s": Server(0.25, p99_s=2.0),
    "unbatched 1 s, p99 <= 6 s": Server(1.0, p99_s=6.0),
}

CURRENT, OTHER = (Candidate.of_models({"m": {"instance_group.count": n}}) for n in (1, 2))


def long_run_late(server: Server, level: float, seeds: Sequence[int], slower: float = 1.0) -> float:
    """Share of late requests under free Poisson arrivals."""
    late = []
    for seed in seeds:
        rng = np.random.default_rng(10_000_000 + seed)
        due_s = np.cumsum(rng.exponential(1.0 / level, LONG_RUN))
        late.append(np.mean(server.answered_s(due_s, rng, slower) - due_s > server.p99_s))
    return float(np.mean(late))


@cache
def true_capacity(server: Server, slower: float = 1.0) -> float:
    """The load at which 1 % of requests are late in the long run."""
    low, high = 0.2 * server.saturation / slower, server.saturation / slower
    for _ in range(10):
        middle = (low * high) ** 0.5
        if long_run_late(server, middle, range(TRUTHS), slower) > ALLOWED:
            high = middle
        else:
            low = middle
    return (low * high) ** 0.5


@cache
def slower_by(server: Server, ratio: float) -> float:
    """By how much a config must be slower to have so many times less capacity."""
    if ratio == 1.0:
        return 1.0
    low, high, aim = 1.0, max(ratio, 1.05) * 1.05, true_capacity(server) / ratio
    for _ in range(7):
        middle = (low + high) / 2
        if true_capacity(server, middle) > aim:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@cache
def sensitivity(server: Server) -> float:
    """The power of a server's speed with which its capacity rises."""
    slower = 1.05
    return float(np.log(true_capacity(server) / true_capacity(server, slower)) / np.log(slower))


@dataclass
class SimulatedBench:
    """The bench of `tune run`, answered from a queue.

    Attributes:
        slower: Of each candidate; one that is not listed is as fast as the server.
        noise: Standard deviation of a server's capacity from start to start, as a share.
        taken: Share of the machine that others take beside a candidate on every other server of
            it, which is as much slower.
        load_s: Seconds of load so far.
    """

    server: Server
    luck: int
    slower: Mapping[Candidate, float] = field(default_factory=dict)
    noise: float = 0.0
    taken: Mapping[Candidate, float] = field(default_factory=dict)
    soak_s: float = 30.0
    load_s: float = 0.0
    deployed: int = 0
    sendable: ClientCeiling = field(default_factory=ClientCeiling)
    _speed: float = 1.0
    _taken: float = 0.0

    @property
    def slo(self) -> Slo:
        bound = self.server.p99_s
        return Slo(P99_LATENCY, 1e6 * bound, f"p99 <= {bound:g}s")

    def enter(self, stage: Stage) -> None:
        """All stages measure alike."""

    def deploy(
        self, candidate: Candidate, *, fresh: bool = False, in_production: bool = False
    ) -> None:
        self.deployed += 1
        rng = np.random.default_rng((self.luck, self.deployed))
        luck, disturbed = rng.standard_normal(), rng.random() < 0.5
        self._taken = self.taken.get(candidate, 0.0) if disturbed else 0.0
        slowdown = self.slower.get(candidate, 1.0) / (1.0 - self._taken)
        off = self.noise * luck / sensitivity(self.server) if self.noise else 0.0
        self._speed = slowdown * float(np.exp(off))

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        return self._judged(level, self.window(level), seed)

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        window = soak_for(self.window(level), [0.99], level, self.soak_s, least_s)
        return self._judged(level, window, seed)

    def window(self, level: float) -> Window:
        window = window_for(
            [0.99],
            level,
            window_s=BRIEF * WINDOW_S,
            max_window_s=600.0,
            warmup_s=0.5,
            latency_bound_s=self.server.p99_s,
            brief=True,
        )
        return replace(window, bounds=(Slo(P99_LATENCY, 1e6 * self.server.p99_s),))

    def _judged(self, level: float, window: Window, seed: int) -> Point:
        self.load_s += window.total_s
        load = LoadPoint(Arrivals.POISSON, level)
        return judge_point([self.slo], self._measured(load, window, seed))

    def _measured(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        due_s = arrivals_of(load, (window.warmup_s, window.duration_s, window.tail_s + 2.0), seed)
        rng = np.random.default_rng((self.luck, self.deployed, seed))
        answered_ns = 1e9 * self.server.answered_s(due_s, rng, self._speed)
        in_time = answered_ns < 1e9 * window.total_s
        requests = AnsweredRequests(
            (1e9 * due_s[in_time]).astype(np.int64),
            answered_ns[in_time].astype(np.int64),
            int(1e9 * window.total_s),
        )
        figures = figures_of(observe_open(requests, due_s, window), load, seed)
        measurement = Measurement.of_all(figures)
        host = replace(measurement.host, other_cpu_percent=100.0 * self._taken)
        return replace(measurement, host=host)
