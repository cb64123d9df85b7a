"""The stored measurements of a confirmation: one that was interrupted goes on from them.

What a confirmation measures next follows from what it measured before. So stored rows, given again
in their order, lead to where it was, and no server is started until then. They also tell how well
the measurements of a run repeat.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from tuner.bench.protocol import Bench
from tuner.confirm.rounds import Row
from tuner.load.probes.answers import Answers
from tuner.load.probes.overload import Overload
from tuner.measurement.measurement import Measurement, Stage
from tuner.measurement.window import Window
from tuner.run.confirmation import Repeat, Role, RunNoise
from tuner.score.capacity import Bracket
from tuner.score.point import Point
from tuner.server.server import Endpoints
from tuner.space.candidate import Candidate
from tuner.spec.slo import Slo
from tuner.triton.deploy import Deployment, DeploymentKind

_NOT_YET = Deployment(DeploymentKind.UNCHANGED, 0.0, Endpoints("", "", ""), {})


def finished_rows(stored: Sequence[Repeat]) -> int:
    """How many rows, from the first, belong to rounds that were over.

    The sides of a round are compared because they were measured one after the other, so a round
    that was interrupted is measured again as a whole. What is in no round is complete in itself.
    """
    if not stored or stored[-1].alone:
        return len(stored)
    kept, last = len(stored), _round_of(stored[-1])
    while kept and _round_of(stored[kept - 1]) == last:
        kept -= 1
    return kept


def _round_of(row: Repeat) -> tuple[int, str]:
    """A simpler config is measured in all its rounds before another is."""
    return row.round, row.candidate_key if row.role is Role.SIMPLER else ""


class ResumedBench:
    """Gives the stored measurements as long as they are what is asked for, then those of ``bench``.

    Args:
        stored: Rows of finished rounds, in their order.
        forget: Receives how many rows were used, once something else is asked for than the next.
    """

    def __init__(
        self,
        bench: Bench,
        stored: Sequence[Repeat],
        record: Callable[[Row], None],
        forget: Callable[[int], None],
    ) -> None:
        self._bench, self._record, self._forget = bench, record, forget
        self.sendable = bench.sendable
        self._stored, self._used = list(stored), 0
        self._asked: Candidate | None = None  # to be deployed once something must be measured
        self._fresh = False

    def record(self, row: Row) -> None:
        """Stores a row, unless it is a stored one."""
        if not any(row.point is repeat.point for repeat in self._stored):
            self._record(row)

    def enter(self, stage: Stage) -> None:
        self._bench.enter(stage)

    def deploy(self, candidate: Candidate, *, fresh: bool = False) -> Deployment:
        """Deploys at once only where nothing stored is left."""
        self._asked, self._fresh = candidate, self._fresh or fresh
        return _NOT_YET if self._used < len(self._stored) else self._deploy(candidate)

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        return self._next(level) or self._live().measure(level, seed, least_s)

    def soak(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        return self._next(level, Role.SOAK) or self._live().soak(level, seed, least_s)

    def once(self, level: float, seed: int, window: Window) -> Point:
        return self._next(level, Role.CURVE) or self._served().once(level, seed, window)

    def answers(self) -> Mapping[str, Answers]:
        return self._served().answers()

    def overload(self, capacity: float, slo: Slo, seed: int) -> Overload:
        return self._live().overload(capacity, slo, seed)

    def one_at_a_time(self, seed: int) -> Mapping[str, float]:
        return self._served().one_at_a_time(seed)

    def many_at_once(self, concurrency: int, seed: int) -> float:
        return self._live().many_at_once(concurrency, seed)

    def lost(self, reason: str) -> None:
        self._bench.lost(reason)

    def _next(self, level: float, alone: Role | None = None) -> Point | None:
        """The next stored row, if it is what is asked for; ``alone``: None for one of a round."""
        if self._used == len(self._stored) or self._asked is None:
            return None
        row = self._stored[self._used]
        stored = (row.candidate_key, row.point.level, row.role if row.alone else None)
        if stored != (self._asked.key, level, alone):
            return None
        self._used += 1
        self._fresh = True  # the server it was measured on is gone
        return row.point

    def _live(self) -> Bench:
        """The bench with the config on it, for a measurement that is not stored."""
        if self._used < len(self._stored):
            del self._stored[self._used :]
            self._forget(self._used)
        return self._served()

    def _served(self) -> Bench:
        if self._asked is not None:
            self._deploy(self._asked)
        return self._bench

    def _deploy(self, candidate: Candidate) -> Deployment:
        fresh, self._asked, self._fresh = self._fresh, None, False
        return self._bench.deploy(candidate, fresh=fresh)


def spread(groups: Iterable[Sequence[float]]) -> tuple[int, float | None]:
    """How many values repeat another, and their coefficient of variation, pooled over the groups.

    It is None with fewer than two values of anything; else the square root of the mean squared
    deviation from each group's mean, relative to that mean, over the degrees of freedom of all
    groups together (each has its count minus one). Source: the pooled variance of any text on
    analysis of variance.
    """
    squares, freedom, count = 0.0, 0, 0
    for group in groups:
        if len(group) < 2 or (mean := math.fsum(group) / len(group)) <= 0.0:
            continue
        squares += math.fsum((value / mean - 1.0) ** 2 for value in group)
        freedom += len(group) - 1
        count += len(group)
    return count, math.sqrt(squares / freedom) if freedom else None


def noise_of(repeats: Iterable[Repeat]) -> RunNoise | None:
    """From what a run measured again; None when nothing was measured twice."""
    same_load: dict[tuple[str, float], list[Measurement]] = defaultdict(list)
    rounds: dict[tuple[str, int], list[Point]] = defaultdict(list)
    for repeat in repeats:
        if repeat.alone:
            continue  # another window, and chosen by what the one before showed
        point = repeat.point
        same_load[repeat.candidate_key, point.level].append(point.measurement)
        rounds[repeat.candidate_key, repeat.round].append(point)
    capacities: dict[str, list[float]] = defaultdict(list)
    for (candidate, _), points in rounds.items():
        bracket = Bracket.of(points)
        capacity = bracket.capacity()
        if capacity is not None and bracket.ceiling is not None:
            capacities[candidate].append(capacity)
    throughputs, throughput_cv = spread(
        [[m.throughput_infer_per_s for m in g] for g in same_load.values()]
    )
    _, p99_cv = spread([[m.p99_latency_us for m in g] for g in same_load.values()])
    between, between_cv = spread(capacities.values())
    if not throughputs and not between:
        return None
    return RunNoise(throughputs, throughput_cv, p99_cv, between, between_cv)
