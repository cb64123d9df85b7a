"""The bench: deploys a candidate, puts load on it, and judges what came back.

The only place where `triton`, `load` and `score` meet. The search and the confirmation both
measure here, so that they measure the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.errors import ServerGoneError
from tuner.load.answers import Answers
from tuner.load.generator import LoadGenerator, Window
from tuner.load.measurement import Arrivals, LoadPoint, Measurement
from tuner.run.timebook import Phase, TimeBook
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.triton.deploy import Deployment
from tuner.triton.server import Endpoints

#: A response cache is filled by closed loops of this many clients, in rounds of this length,
#: until its hit rate rises by less than this in a round, or for this many rounds.
FILLING = LoadPoint(Arrivals.CLOSED, 8)
FILLING_WINDOW = Window(duration_s=2.0, warmup_s=0.0, deadline_s=60.0, tail_s=0.1)
FILLED = 0.01
MOST_FILLINGS = 5
#: Seeds of fillings are far from those of measurements.
CACHE_SEED = 900_000

#: Long enough to know a latency, not to judge it.
QUICK_LOOK = Window(duration_s=0.6, warmup_s=0.3, deadline_s=60.0)


class Deploys(Protocol):
    """What the bench needs of `tuner.triton.deploy.Deployer`."""

    def deploy(self, candidate: Candidate) -> Deployment: ...

    def fresh(self) -> None: ...


class Asks(LoadGenerator, Protocol):
    """A load generator that can also tell what the model answers."""

    def answers(self) -> Answers: ...


@dataclass(frozen=True)
class BenchRules:
    """How every measurement of a run is made.

    Attributes:
        window: Load point to the length of its measurement.
        checkpoint: Called before each step; raises when the run is to stop.
    """

    slos: Sequence[Slo]
    arrivals: Arrivals
    window: Callable[[LoadPoint], Window]
    checkpoint: Callable[[], None]
    measured: Callable[[Point], None]


class Bench:
    """Measures one deployed candidate at a time.

    Args:
        deployer: Owns the server.
        generator: Makes the load generator for a server's endpoints.
        rules: What to measure and how to judge it.
        book: Gets the seconds.
    """

    def __init__(
        self,
        deployer: Deploys,
        generator: Callable[[Endpoints], Asks],
        rules: BenchRules,
        book: TimeBook,
    ) -> None:
        self._deployer = deployer
        self._make_generator = generator
        self._rules = rules
        self._book = book
        self._generator: Asks | None = None
        self._endpoints: Endpoints | None = None
        self._candidate: Candidate | None = None
        self._backlog = False

    @property
    def arrivals(self) -> Arrivals:
        return self._rules.arrivals

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> Deployment:
        """Puts the candidate in place.

        A candidate with server arguments always gets a fresh server: Triton's response cache
        survives a reload, and what an earlier trial left in it would be measured again. Its cache
        is then filled to its steady state, which is what is measured.
        """
        self._rules.checkpoint()
        with self._book.phase(Phase.DEPLOYING):
            if fresh or self._backlog or candidate.server_args:
                self._deployer.fresh()
            self._backlog = False
            deployment = self._deployer.deploy(candidate)
            self._candidate = candidate
            if deployment.endpoints != self._endpoints:
                self._generator = self._make_generator(deployment.endpoints)
                self._endpoints = deployment.endpoints
        if deployment.running.response_cache.enable and candidate.server_args:
            self._fill_cache()
        return deployment

    def measure(self, level: float, seed: int) -> Point:
        """One level of the run's arrivals on the deployed candidate.

        Raises:
            LoadFailedError: No usable result.
            ServerGoneError: The server died, or none is deployed.
        """
        self._rules.checkpoint()
        load = LoadPoint(self._rules.arrivals, level)
        measurement = self._put(load, self._rules.window(load), seed)
        point = judge_point(self._rules.slos, measurement)
        self._rules.measured(point)
        return point

    def one_at_a_time(self, seed: int) -> float:
        """Mean latency in seconds of one request after another: where to begin with rates."""
        self._rules.checkpoint()
        measurement = self._put(LoadPoint(Arrivals.CLOSED, 1), QUICK_LOOK, seed)
        return measurement.avg_latency_us / 1e6

    def answers(self) -> Answers:
        """What the deployed candidate answers to some of the workload's inputs.

        Raises:
            ServerGoneError: The server died, or none is deployed.
        """
        self._rules.checkpoint()
        if self._generator is None:
            raise ServerGoneError("no candidate is deployed")
        with self._book.phase(Phase.MEASURING):
            return self._generator.answers()

    def _fill_cache(self) -> None:
        before = -1.0
        for seed in range(MOST_FILLINGS):
            server = self._put(FILLING, FILLING_WINDOW, CACHE_SEED + seed).server
            rate = None if server is None else server.cache_hit_rate
            if rate is None or rate < before + FILLED:
                return
            before = rate

    def _put(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        if self._backlog and self._candidate is not None:
            self.deploy(self._candidate)
        if self._generator is None:
            raise ServerGoneError("no candidate is deployed")
        with self._book.phase(Phase.MEASURING):
            measurement = self._generator.measure(load, window, seed)
        self._backlog = measurement.backlog
        return measurement
