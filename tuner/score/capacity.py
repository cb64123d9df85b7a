"""The search for the highest load that meets every SLO, by the loads that were measured.

A level that passes is a floor, one that fails a ceiling. Between them the capacity is where the
*SLO utilisation* (the largest share of a bound that was used up) crosses one.
`tuner.score.next_load` says which level to measure next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Literal, Protocol, assert_never

from tuner.score.judge import SloOutcome


class Probe(Protocol):
    """What one load level showed: a point that was measured, one simulated, or `NoResult`."""

    @property
    def level(self) -> float: ...

    @property
    def outcome(self) -> SloOutcome: ...

    @property
    def passed(self) -> bool:
        """Every SLO was met; else one was missed, or there were too few answers: see `outcome`."""

    @property
    def served_per_s(self) -> float | None:
        """The level that was answered, of a mix by its worst stream; None for closed loops."""

    @property
    def slo_utilisation(self) -> float | None:
        """Reading over bound of the worst SLO: above 1 is missed. None without a reading."""


@dataclass(frozen=True)
class NoResult:
    """A load from which no result came: too much.

    ``served_per_s``: what the load generator could send, where that was the limit and is known.
    """

    level: float
    served_per_s: float | None = None
    outcome: Literal[SloOutcome.MISSED] = SloOutcome.MISSED
    passed: Literal[False] = False
    slo_utilisation: None = None


def saturated(probe: Probe) -> bool:
    """The server could not answer all that was sent."""
    return probe.served_per_s is not None and probe.served_per_s < SATURATED * probe.level


@dataclass(frozen=True)
class Bracket:
    """The highest level that passed and the lowest above it that failed; None where none did."""

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
                    # A pass above a failure means that this was noise or a mode of the load.
                    if ceiling is not None and ceiling.level <= floor.level:
                        ceiling = None
                case SloOutcome.TOO_FEW:
                    pass
                case _:
                    assert_never(probe.outcome)
        return cls(floor, ceiling)

    @property
    def top(self) -> float:
        """No level above this passes; infinite while there is no ceiling."""
        if self.ceiling is None:
            return math.inf
        served = self.ceiling.served_per_s
        if self.floor is None or served is None or not saturated(self.ceiling):
            return self.ceiling.level
        return served if served > self.floor.level else self.ceiling.level

    @property
    def gap(self) -> float:
        """Ceiling over floor minus one; infinite while one is missing."""
        if self.floor is None or self.ceiling is None:
            return math.inf
        return self.ceiling.level / self.floor.level - 1.0

    def closed(self, tolerance: float) -> bool:
        """True when the floor is known to be within ``tolerance`` (a share) of the capacity."""
        if self.gap <= tolerance:
            return True
        if self.floor is None or self.ceiling is None or saturated(self.ceiling):
            return False
        near = crossing(self.floor, self.ceiling) <= self.floor.level * (1.0 + tolerance / 2)
        return near and self.gap <= _STRAIGHT * tolerance

    def capacity(self) -> float | None:
        """The best guess at the highest level that passes; None when none did."""
        if self.floor is None:
            return None
        if self.ceiling is None:
            return self.floor.level
        return min(crossing(self.floor, self.ceiling), self.top)


@dataclass(frozen=True)
class LevelRange:
    """Levels that may be asked for; ``whole`` for concurrency, ``limited`` by what can be sent.

    ``step``: Each is a multiple of it; 0: any.
    """

    lowest: float
    highest: float
    integer: bool = False
    limited: bool = False
    step: float = 0.0

    def below(self, sendable: float) -> LevelRange:
        """Those of them that the load generator can send."""
        if sendable >= self.highest:
            return self
        return replace(self, highest=self.nearest(sendable), limited=True)

    def limit(self, probes: Sequence[Probe]) -> float:
        """All that the load generator can send, where a level that passed is; else infinite."""
        highest = max((p.level for p in probes if p.passed), default=0.0)
        return highest if self.limited and highest >= self.highest else math.inf

    def nearest(self, level: float) -> float:
        level = min(max(level, self.lowest), self.highest)
        if self.unit:
            return float(f"{max(round(level / self.unit), 1) * self.unit:.12g}")
        return float(f"{level:.5g}")

    @property
    def unit(self) -> float:
        """The distance of one level from the next; 0: they are as near as can be."""
        return 1.0 if self.integer else self.step


#: A server that answers less than this share of what is sent is saturated.
SATURATED = 0.97
#: The line between logarithms is trusted over brackets of this many tolerances.
_STRAIGHT = 4.0
#: SLO utilisation between which a measurement tells where the bound is.
NEAR = (0.7, 1.6)
#: Loads further apart than this share tell less than the slope of all measurements does.
WIDE = 0.12
#: Between two loads the utilisation to this power is taken to be a line over the load. It is one to
#: the power -1 where requests wait as in M/M/1, with latencies as 1 / (1 - load / saturation), and
#: nearly one to the power 0 (logarithms) where latency is a power of the load: this is the middle.
CHORD = -0.5
#: No tail latency rises more slowly than this power of the load near its bound, or is steeper.
SLOPES = (1.0, 40.0)


def crossing(floor: Probe, ceiling: Probe) -> float:
    """The load of utilisation 1 on a line between logarithms; without readings, the middle."""
    low, high = floor.slo_utilisation, ceiling.slo_utilisation
    if low is None or high is None or not 0.0 < low <= 1.0 < high:
        return math.sqrt(floor.level * ceiling.level)
    share = -math.log(low) / (math.log(high) - math.log(low))
    return floor.level * math.exp(share * math.log(ceiling.level / floor.level))


def capacity_by_power(floor: Probe, ceiling: Probe, power: float = CHORD) -> float:
    """The load of utilisation 1 on a line of it to this ``power`` over the load, see `CHORD`."""
    low, high = floor.slo_utilisation, ceiling.slo_utilisation
    if low is None or high is None or not 0.0 < low <= 1.0 < high:
        return crossing(floor, ceiling)
    share: float = (low**power - 1.0) / (low**power - high**power)
    return floor.level + share * (ceiling.level - floor.level)


def is_near(probe: Probe) -> bool:
    """Whether its utilisation tells where the bound is, and decided whether it passed."""
    if (
        probe.slo_utilisation is None
        or saturated(probe)
        or probe.outcome.met is not (probe.slo_utilisation <= 1.0)
    ):
        return False
    low, high = NEAR
    return low <= probe.slo_utilisation <= high


def steepness(rounds: Sequence[Sequence[Probe]]) -> float | None:
    """The power of the load with which utilisation rises near the bound; None: too few near it.

    Least squares of log utilisation on log load, within each round.
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


def capacity_level(probes: Sequence[Probe], slope: float | None = None) -> float:
    """The level at which utilisation is one.

    It lies between a level that passed and one close above it that failed; else it is the mean of
    what each measurement near the bound gives with the ``slope``, else the highest level that
    passed, else what was answered at the lowest.
    """
    bracket = Bracket.of(probes)
    near = [p for p in probes if is_near(p)]
    if bracket.gap > WIDE and slope is not None and near:
        return geometric_mean(
            [p.level * (p.slo_utilisation or 1.0) ** (-1.0 / slope) for p in near]
        )
    if bracket.floor is not None and bracket.ceiling is not None:
        ceiling = bracket.ceiling
        if saturated(ceiling) and (ceiling.slo_utilisation or 0.0) <= 1.0:
            return max(ceiling.served_per_s or 0.0, bracket.floor.served_per_s or 0.0)
        return min(capacity_by_power(bracket.floor, ceiling), bracket.top)
    answered = (p.served_per_s if saturated(p) and p.served_per_s else p.level for p in probes)
    return bracket.capacity() or min(answered)
