"""A measured grid of a composed space: how it is stored, and what it says about a config."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import mean
from typing import Any, Self

import numpy as np
import recorded_table as tables
from recorded_table import Recording

from tuner.score.capacity import Bracket, saturated
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


@dataclass(frozen=True)
class Cell:
    """One config measured once.

    Attributes:
        recording: Its repeat is 0 for the measurement that every config has, and from 1 on for
            repeated ones, in turn. An older one, with only loads, has no points: it counts in
            the report but is of no use to a replay.
        capacity: Load up to which it meets every SLO, requests per second; 0 for none.
    """

    recording: Recording
    capacity: float

    @property
    def candidate(self) -> Candidate:
        return self.recording.candidate

    @property
    def replays(self) -> bool:
        """It holds what a replay needs."""
        return bool(self.recording.points)

    def to_json(self) -> dict[str, Any]:
        return {"capacity": self.capacity, **tables.line_of(self.recording)}


@dataclass
class Grid:
    """The file of a grid; it grows line by line, so that the grid can be measured in slots."""

    path: Path
    cells: list[Cell]

    @classmethod
    def read(cls, path: Path, machine: Mapping[str, Any]) -> Self:
        """Its cells so far; without a ``machine``, for reading only.

        Raises:
            ValueError: It was begun on another machine, or with other programs.
        """
        first, *lines = [*tables.lines_of(path)] or [json.dumps({"machine": machine})]
        begun = json.loads(first)["machine"]
        now = json.loads(json.dumps(machine))
        if any(now.get(name, begun[name]) != begun[name] for name in begun):
            raise ValueError(f"{path} was begun with {begun}, this is {machine}")
        if machine and not tables.unpack(path).stat().st_size:
            tables.append(path, {"machine": machine})
        return cls(path, [_cell(json.loads(line), begun) for line in lines])

    def add(self, cell: Cell) -> None:
        tables.append(self.path, cell.to_json())
        self.cells.append(cell)

    def firsts(self, alone: str = "") -> dict[Candidate, float]:
        """What each config sustained in its first measurement; the newest if there are two."""
        return {
            c.candidate: c.capacity
            for c in self.cells
            if c.recording.repeat == 0 and c.recording.alone == alone
        }

    def bare(self) -> set[Candidate]:
        """Configs with known loads but no measurement."""
        firsts = [c for c in self.cells if not (c.recording.repeat or c.recording.alone)]
        return {c.candidate for c in firsts} - {c.candidate for c in firsts if c.replays}

    def rounds(self) -> dict[Candidate, list[float]]:
        """What configs sustained in turn, on fresh servers."""
        found: dict[Candidate, list[float]] = {}
        for cell in self.cells:
            if cell.recording.repeat:
                found.setdefault(cell.candidate, []).append(cell.capacity)
        return found

    def worth(self) -> dict[Candidate, float]:
        """For each config the mean of its rounds, or its first measurement if there are none."""
        return self.firsts() | {c: mean(found) for c, found in self.rounds().items()}


def owners(candidates: Sequence[Candidate]) -> list[str]:
    """The models whose fields are searched."""
    return sorted({owner for c in candidates for owner in c.models})


def one_by_one(
    worth: Mapping[Candidate, float], start: Candidate, min_gain: float
) -> Iterator[tuple[tuple[str, ...], Candidate, int]]:
    """Tunes model after model, in each order: the best config of each, given those of the others.

    Yields:
        The order, the result, and how many configs were measured on the way.
    """
    for order in permutations(owners(list(worth))):
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


def _cell(line: Mapping[str, Any], machine: Mapping[str, Any]) -> Cell:
    return Cell(tables.recording_of(line, machine), line["capacity"])


def in_order(space: Space) -> list[Candidate]:
    """The whole space in an order in which a grid that is cut short is worth most.

    The current config comes first, then all without a delay, then the others delay by delay, so the
    table soon covers a whole space of fewer delays. Within it, those with the most of everything
    come first. Configs that differ only in their instances, which Triton changes in place, follow
    each other.
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
    lowest = min((p for p in points if not (p.passed or p.undecided)), key=lambda p: p.level)
    full = lowest.served_per_s if saturated(lowest) else None
    few = max((p.level for p in points if p.undecided), default=0.0)
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
