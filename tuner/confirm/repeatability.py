"""How well the measurements of a run repeat."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.measurement.measurement import Measurement
from tuner.run.confirmation import Repeat, RunNoise
from tuner.score.capacity import Bracket
from tuner.score.point import Point


@dataclass(frozen=True)
class Spread:
    """Repeats of the same thing: ``cv`` is the coefficient of variation, ``count`` the values.

    ``cv`` is None with fewer than two values of anything.
    """

    cv: float | None
    count: int


def spread(groups: Iterable[Sequence[float]]) -> Spread:
    """Coefficient of variation within groups, pooled over them.

    Square root of the mean squared deviation from each group's mean, relative to that mean, over
    the degrees of freedom of all groups together (each has its count minus one). Source: the
    pooled variance of any text on analysis of variance.
    """
    squares, freedom, count = 0.0, 0, 0
    for group in groups:
        if len(group) < 2 or (mean := math.fsum(group) / len(group)) <= 0.0:
            continue
        squares += math.fsum((value / mean - 1.0) ** 2 for value in group)
        freedom += len(group) - 1
        count += len(group)
    return Spread(math.sqrt(squares / freedom) if freedom else None, count)


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
    throughput = spread([[m.throughput_infer_per_s for m in g] for g in same_load.values()])
    p99 = spread([[m.p99_latency_us for m in g] for g in same_load.values()])
    between = spread(capacities.values())
    if not throughput.count and not between.count:
        return None
    return RunNoise(throughput.count, throughput.cv, p99.cv, between.count, between.cv)
