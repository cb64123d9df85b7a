"""In which order a space's configs are recorded, at which loads, and what a recorded grid shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from tuner.score.capacity import Bracket, saturated
from tuner.score.judge import SloOutcome
from tuner.score.point import Point
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.space import Space
from tuner.spec.paths import DELAY, is_instance_count

#: A capacity is known once the loads on both sides of it are this near.
CLOSE = 0.2
#: Power of the load with which the utilisation of an SLO is taken to rise near the capacity.
_STEEP = 3.0
#: Steps up and down: no smaller and no larger than these.
_LEAST_STEP, _MOST_STEP = 1.12, 2.5
#: What a saturated server answers is a little more than it sustains.
_BELOW_SATURATION = 0.95
#: Over how many differing fields capacities resemble each other, and how far one may be off; if no
#: known config is within this many fields, nothing is known.
_REACH, _OFF, _NEAR = 10.0, 0.05, 2


def one_by_one(
    worth: Mapping[Candidate, float], start: Candidate, min_gain: float
) -> Iterator[tuple[tuple[str, ...], Candidate, int]]:
    """Tunes model after model, in each order: the best config of each, given those of the others.

    Yields:
        The order, the result, and how many configs were measured on the way.
    """
    for order in permutations(sorted({owner for c in worth for owner in c.models})):
        now, tried = start, {start}
        for owner in order:
            rivals = [c for c in worth if _others(c, owner) == _others(now, owner)]
            tried.update(rivals)
            best = max(rivals, key=lambda c: worth[c])
            if worth[best] > worth[now] * (1.0 + min_gain):
                now = best
        yield order, now, len(tried)


def _others(candidate: Candidate, owner: str) -> dict[str, Any]:
    return {name: dict(fields) for name, fields in candidate.models.items() if name != owner}


def in_order(space: Space) -> list[Candidate]:
    """The whole space in an order in which a grid that is cut short is worth most.

    The current config comes first, then all without a delay, then the others delay by delay. Within
    these, those with the most of everything come first. Configs that differ only in their
    instances, which Triton changes in place, follow each other.
    """
    current = space.canonical(space.current)

    def place(candidate: Candidate) -> tuple[float, ...]:
        every = [(k, candidate.values.get(k)) for k in (p.knob for p in space.parameters)]
        delays = [_size(v) for k, v in every if k.path == DELAY]
        counts = [-_size(v) for k, v in every if is_instance_count(k.path)]
        others = [-_size(v) for k, v in every if k.path != DELAY and not is_instance_count(k.path)]
        longer = [max(delay, 0.0) for delay in delays]
        return (candidate != current, *longer, *others, *delays, *counts)

    return sorted(space.enumerate(), key=place)


def _size(value: FieldValue) -> float:
    if isinstance(value, tuple):
        return max((_size(v) for v in value), default=0.0)
    return float(value) if isinstance(value, (bool, int, float)) else -1.0


def guess(candidate: Candidate, known: Mapping[Candidate, float]) -> float | None:
    """What a config probably sustains, from what others do; None if nothing near it is known.

    The mean of a Gaussian process over the logarithms; the more fields two configs differ in, the
    less one says about the other.
    """
    stood = {c: capacity for c, capacity in known.items() if capacity}
    if not stood or candidate in stood:
        return stood.get(candidate)
    every = [*stood, candidate]
    apart = np.array([[one.differences(other) for other in stood] for one in every])
    if apart[-1].min() > _NEAR:
        return None
    alike = np.exp(-apart / _REACH)
    logs = np.log(list(stood.values()))
    weights = np.linalg.solve(alike[:-1] + _OFF**2 * np.eye(len(stood)), logs - logs.mean())
    return math.exp(logs.mean() + alike[-1] @ weights)


def next_load(points: Sequence[Point]) -> float | None:
    """The next level after ``points``; None if the capacity lies between two that are close."""
    bracket = Bracket.of(points)
    floor, ceiling = bracket.floor, bracket.ceiling
    if bracket.gap <= CLOSE:
        return None
    loads = sorted(p.level for p in points)
    if ceiling is None:
        highest = max(points, key=lambda p: p.level)
        used = None if floor is None else highest.slo_utilisation
        return highest.level * _step(1.0 / used if used else None, loads[-2:])
    lowest = min((p for p in points if p.outcome is SloOutcome.MISSED), key=lambda p: p.level)
    full = lowest.served_per_s if saturated(lowest) else None
    few = max((p.level for p in points if p.outcome is SloOutcome.TOO_FEW), default=0.0)
    if floor is None and few:  # there are too few answers below, too
        return math.sqrt(few * ceiling.level)
    if floor is None:
        down = lowest.level / _step(lowest.slo_utilisation, loads[:2])
        return down if full is None else _BELOW_SATURATION * full
    step = 1.0 + CLOSE / 4
    near = bracket.capacity() if full is None else _BELOW_SATURATION * full
    if near is None or near < floor.level * step:
        near = bracket.capacity() or floor.level
    return min(max(near, floor.level * step), ceiling.level / step)


def _step(beyond: float | None, last: Sequence[float]) -> float:
    """How far to step if the utilisation should change by this factor.

    A latency may hardly change over a wide range, and so not show the distance: steps get longer.
    """
    step = _MOST_STEP if beyond is None else beyond ** (1.0 / _STEEP)
    faster = (last[-1] / last[0]) ** 2
    return min(max(step, faster, _LEAST_STEP), _MOST_STEP)
