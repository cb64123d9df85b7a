"""Repeatability of measurements, estimated from the rounds of a proof, and which rows count."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tuner.measurement.measurement import Measurement
from tuner.record.confirmation import Repeat, Role, RunNoise
from tuner.score.capacity import Bracket
from tuner.score.point import Point


def count_of_full_rounds(stored: Sequence[Repeat]) -> int:
    """The number of rows, from the first, that belong to complete rounds.

    A round compares configs that were measured right after each other, so an interrupted round is
    measured again as a whole. A soak, and a simpler config under its one load, stand alone.
    """
    kept = len(stored)
    in_round = kept > 0 and stored[-1].role in (Role.CURRENT, Role.CANDIDATE)
    while in_round and kept and stored[kept - 1].round == stored[-1].round:
        kept -= 1
    return kept


def spread(groups: Iterable[Sequence[float]]) -> tuple[int, float | None]:
    """Number of repeated values, and their coefficient of variation, pooled over the groups.

    The coefficient is the square root of the mean squared deviation from each group's mean,
    relative to that mean, over the degrees of freedom of all groups together (each has its count
    minus one). It is None unless some group has two values. Source: the pooled variance, as in any
    textbook on analysis of variance.
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
    """The noise of a run's repeated measurements; None if nothing was measured twice."""
    same_load: dict[tuple[str, float], list[Measurement]] = defaultdict(list)
    rounds: dict[tuple[str, int], list[Point]] = defaultdict(list)
    for repeat in repeats:
        if repeat.alone:
            continue  # its window is another one, and earlier results chose its load
        point = repeat.point
        same_load[repeat.candidate_key, point.level].append(point.measurement)
        if repeat.is_look:
            continue
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
