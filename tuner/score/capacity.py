"""The capacity of a config, the highest load that meets every SLO, from the measured loads.

The highest level that passed is the floor, the lowest above it that failed the ceiling. Between
them, the capacity is the level where the *SLO utilisation* (the largest measured value as a share
of its bound) reaches 1. `tuner.score.next_load` chooses the next level to measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Literal, Protocol, assert_never

from tuner.score.judge import SloOutcome


class Probe(Protocol):
    """The result at one level: a measured point, a simulated point or `NoResult`.

    A level is in requests per second of an open loop, or in clients of a closed loop.
    """

    @property
    def level(self) -> float: ...

    @property
    def outcome(self) -> SloOutcome: ...

    @property
    def passed(self) -> bool:
        """Whether every SLO was met; else, ``outcome`` is `MISSED` or `TOO_FEW`."""

    @property
    def served_per_s(self) -> float | None:
        """Answered requests per second, of a mix by its worst stream; None for closed loops."""

    @property
    def slo_utilisation(self) -> float | None:
        """Measured value over bound of the worst SLO, above 1 if missed; None without a value."""


@dataclass(frozen=True)
class NoResult:
    """A level that gave no result; it counts as missed.

    ``served_per_s``: requests per second that the load generator could send, where that was the
    limit and is known.
    """

    level: float
    served_per_s: float | None = None
    outcome: Literal[SloOutcome.MISSED] = SloOutcome.MISSED
    passed: Literal[False] = False
    slo_utilisation: None = None


def saturated(probe: Probe) -> bool:
    """Whether the server answered less than `SATURATED` of the requests sent."""
    return probe.served_per_s is not None and probe.served_per_s < SATURATED * probe.level


@dataclass(frozen=True)
class Bracket:
    """The levels that enclose the capacity.

    Attributes:
        floor: The highest level that passed; None where none did.
        ceiling: The lowest level above the floor that failed; None where none did.
    """

    floor: Probe | None = None
    ceiling: Probe | None = None

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> Bracket:
        floor: Probe | None = None
        ceiling: Probe | None = None
        for probe in probes:
            match probe.outcome:
                case SloOutcome.MISSED:
                    ceiling = probe if ceiling is None or probe.level < ceiling.level else ceiling
                case SloOutcome.MET:
                    floor = probe if floor is None or probe.level > floor.level else floor
                    # A level that passes above one that failed: the failure was noise.
                    if ceiling is not None and ceiling.level <= floor.level:
                        ceiling = None
                case SloOutcome.TOO_FEW:
                    pass
                case _:
                    assert_never(probe.outcome)
        return cls(floor, ceiling)

    @property
    def top(self) -> float:
        """Upper bound on the capacity, as a level; infinite without a ceiling."""
        if self.ceiling is None:
            return math.inf
        served = self.ceiling.served_per_s
        if self.floor is None or served is None or not saturated(self.ceiling):
            return self.ceiling.level
        return served if served > self.floor.level else self.ceiling.level

    @property
    def gap(self) -> float:
        """Ceiling level over floor level, minus 1; infinite without one of them."""
        if self.floor is None or self.ceiling is None:
            return math.inf
        return self.ceiling.level / self.floor.level - 1.0

    def closed(self, tolerance: float) -> bool:
        """Whether the floor is within ``tolerance``, a share, of the capacity."""
        if self.gap <= tolerance:
            return True
        if self.floor is None or self.ceiling is None or saturated(self.ceiling):
            return False
        near = crossing(self.floor, self.ceiling) <= self.floor.level * (1.0 + tolerance / 2)
        return near and self.gap <= _STRAIGHT * tolerance

    def capacity(self) -> float | None:
        """The estimated capacity as a level; None where no level passed."""
        if self.floor is None:
            return None
        if self.ceiling is None:
            return self.floor.level
        return min(crossing(self.floor, self.ceiling), self.top)


@dataclass(frozen=True)
class LevelRange:
    """The levels that may be measured.

    Attributes:
        lowest: In requests per second of an open loop, or clients of a closed one.
        highest: Likewise.
        integer: Levels are whole numbers, as numbers of clients are.
        limited: ``highest`` is the most that the load generator can send.
        step: Each level is a multiple of this; 0: any level.
    """

    lowest: float
    highest: float
    integer: bool = False
    limited: bool = False
    step: float = 0.0

    def below(self, sendable: float) -> LevelRange:
        """The levels up to ``sendable``, the most that the load generator can send."""
        if sendable >= self.highest:
            return self
        return replace(self, highest=self.nearest(sendable), limited=True)

    def limit(self, probes: Sequence[Probe]) -> float:
        """The most that the load generator can send, where that level passed; else infinite."""
        highest = max((p.level for p in probes if p.passed), default=0.0)
        return highest if self.limited and highest >= self.highest else math.inf

    def nearest(self, level: float) -> float:
        level = min(max(level, self.lowest), self.highest)
        if self.unit:
            return float(f"{max(round(level / self.unit), 1) * self.unit:.12g}")
        return float(f"{level:.5g}")

    @property
    def unit(self) -> float:
        """The distance between neighboring levels; 0: any distance."""
        return 1.0 if self.integer else self.step


#: A server that answers less than this share of the requests sent is saturated.
SATURATED = 0.97
#: The widest bracket, in tolerances, in which the line between logarithms counts as exact.
_STRAIGHT = 4.0
#: Range of the SLO utilisation in which a measurement shows where the capacity is.
NEAR = (0.7, 1.6)
#: In a bracket wider than this share, the slope of all measurements gives a better capacity.
WIDE = 0.12
#: Between two loads, the utilisation to this power is modeled as a linear function of the load.
#: This is exact with power -1 for an M/M/1 queue, whose latencies are proportional to
#: 1 / (1 - load / saturation), and nearly so with power 0 (logarithms) where the latency is a power
#: of the load. This is the mean of the two.
CHORD = -0.5
#: Range of the exponent of the load by which the tail latency rises near its bound.
SLOPES = (1.0, 40.0)


def crossing(floor: Probe, ceiling: Probe) -> float:
    """The level of utilisation 1 on a line between logarithms; else the geometric mean."""
    low, high = floor.slo_utilisation, ceiling.slo_utilisation
    if low is None or high is None or not 0.0 < low <= 1.0 < high:
        return math.sqrt(floor.level * ceiling.level)
    share = -math.log(low) / (math.log(high) - math.log(low))
    return floor.level * math.exp(share * math.log(ceiling.level / floor.level))


def capacity_by_power(floor: Probe, ceiling: Probe, power: float = CHORD) -> float:
    """The level of utilisation 1, if its ``power`` is linear in the level: see `CHORD`."""
    low, high = floor.slo_utilisation, ceiling.slo_utilisation
    if low is None or high is None or not 0.0 < low <= 1.0 < high:
        return crossing(floor, ceiling)
    share: float = (low**power - 1.0) / (low**power - high**power)
    return floor.level + share * (ceiling.level - floor.level)


def is_near(probe: Probe) -> bool:
    """Whether the utilisation is near 1, the server kept up, and the utilisation alone decided."""
    if (
        probe.slo_utilisation is None
        or saturated(probe)
        or probe.outcome.met is not (probe.slo_utilisation <= 1.0)
    ):
        return False
    low, high = NEAR
    return low <= probe.slo_utilisation <= high


def steepness(rounds: Sequence[Sequence[Probe]]) -> float | None:
    """The exponent of the load by which the utilisation rises near the bound, within `SLOPES`.

    It is fitted by least squares of log utilisation on log load, within each round. None where no
    round has two different loads near the bound.
    """
    sxx = sxy = 0.0
    for probes in rounds:
        near = [
            (math.log(p.level), math.log(p.slo_utilisation or 1.0)) for p in probes if is_near(p)
        ]
        mean_x = sum(x for x, _ in near) / max(len(near), 1)
        sxx += sum((x - mean_x) ** 2 for x, _ in near)
        sxy += sum((x - mean_x) * y for x, y in near)
    return min(max(sxy / sxx, SLOPES[0]), SLOPES[1]) if sxx > 0.0 else None


def level_at_bound(probe: Probe, slope: float) -> float:
    """The level of utilisation 1, if it rises with the load to the power of ``slope``."""
    return probe.level * float((probe.slo_utilisation or 1.0) ** (-1.0 / slope))


def capacity_level(probes: Sequence[Probe], slope: float | None = None) -> float:
    """The capacity of a config as a level: where its SLO utilisation is 1.

    The first of these that applies:

    - If floor and ceiling are not within `WIDE` of each other: the geometric mean of the capacities
      that the measurements near the bound give with the ``slope``.
    - Between floor and ceiling, by interpolation.
    - Without a ceiling, the highest level that passed.
    - Without a floor, the least that was answered, or tried without saturation.

    Args:
        probes: The results at each level; at least one.
        slope: See `steepness`.
    """
    bracket = Bracket.of(probes)
    near = [p for p in probes if is_near(p)]
    if bracket.gap > WIDE and slope is not None and near:
        return geometric_mean([level_at_bound(p, slope) for p in near])
    if bracket.floor is not None and bracket.ceiling is not None:
        ceiling = bracket.ceiling
        if saturated(ceiling) and (ceiling.slo_utilisation or 0.0) <= 1.0:
            return max(ceiling.served_per_s or 0.0, bracket.floor.served_per_s or 0.0)
        return min(capacity_by_power(bracket.floor, ceiling), bracket.top)
    answered = (p.served_per_s if saturated(p) and p.served_per_s else p.level for p in probes)
    return bracket.capacity() or min(answered)
