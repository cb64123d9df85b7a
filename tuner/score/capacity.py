"""The highest load that meets every SLO, found with few measurements.

A level that passes is a floor, one that fails a ceiling. Between them the capacity is where the
*SLO utilisation* (the largest share of a bound that was used up) crosses one, on a straight line
between logarithms. Latency grows faster than load, so near its bound this gives the capacity far
better than the middle of the bracket would. Two more things shorten the search: an overloaded
server shows its own saturation (it answers fewer requests than are sent), and a candidate that
fails at the incumbent's load is not measured further. A level without enough answers for a verdict
is neither floor nor ceiling: higher levels have more answers, lower ones never do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol


class Probe(Protocol):
    """What one load level showed: a point that was measured, one simulated, or `NoResult`."""

    @property
    def level(self) -> float: ...

    @property
    def passed(self) -> bool:
        """Every SLO was met."""

    @property
    def served_per_s(self) -> float | None:
        """The level that was answered, in requests a second; None for closed loops.

        Of a mix that of the stream which was answered the least of its share.
        """

    @property
    def slo_utilisation(self) -> float | None:
        """Reading over bound of the SLO that is nearest to being missed or missed most.

        Above 1 is missed. None without a reading.
        """

    @property
    def undecided(self) -> bool:
        """No SLO was missed, but there were too few answers for a verdict.

        That says nothing of the config, neither here nor at lower loads, where there are fewer.
        """


@dataclass(frozen=True)
class NoResult:
    """A load that was sent, and from which no result came: too much."""

    level: float
    passed: Literal[False] = False
    served_per_s: None = None
    slo_utilisation: None = None
    undecided: Literal[False] = False


def saturated(probe: Probe) -> bool:
    """The server could not answer all that was sent."""
    return probe.served_per_s is not None and probe.served_per_s < SATURATED * probe.level


@dataclass(frozen=True)
class Bracket:
    """The highest level that passed and the lowest above it that failed; None where none did.

    What is undecided is neither.
    """

    floor: Probe | None = None
    ceiling: Probe | None = None

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> Bracket:
        bracket = cls()
        for probe in probes:
            bracket = bracket.with_probe(probe)
        return bracket

    def with_probe(self, probe: Probe) -> Bracket:
        if probe.undecided:
            return self
        if not probe.passed:
            lower = self.ceiling is None or probe.level < self.ceiling.level
            return replace(self, ceiling=probe) if lower else self
        floor = self.floor
        if floor is None or probe.level > floor.level:
            floor = probe
        # A pass above an earlier failure means that failure was noise or a mode of the load.
        overtaken = self.ceiling is not None and self.ceiling.level <= floor.level
        return Bracket(floor, None if overtaken else self.ceiling)

    @property
    def top(self) -> float:
        """No level above this passes: that of the ceiling, or what it answered where saturated.

        The latter only where it is above the floor. Infinite while there is no ceiling.
        """
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
    """Levels that may be asked for.

    Attributes:
        whole: For concurrency.
        limited: The highest is what the load generator can send.
    """

    lowest: float
    highest: float
    whole: bool = False
    limited: bool = False

    def below(self, sendable: float) -> LevelRange:
        """Those of them that the load generator can send."""
        if sendable >= self.highest:
            return self
        return replace(self, highest=self.nearest(sendable), limited=True)

    def reached_by(self, floor: Probe) -> bool:
        """Whether a level that passed is all that the load generator can send."""
        return self.limited and floor.level >= self.highest

    def nearest(self, level: float) -> float:
        level = min(max(level, self.lowest), self.highest)
        return float(round(level)) if self.whole else float(f"{level:.5g}")


#: A server that answers less than this share of what is sent is saturated.
SATURATED = 0.97
#: Capacities found by the search are within this share of the truth, noise aside.
TOLERANCE = 0.03
#: The line between logarithms is trusted over brackets of this many tolerances.
_STRAIGHT = 4.0
#: Below this utilisation nothing is known of the capacity yet: raise the load far, to saturate it.
_AT_EASE = 0.5
_FAR = 3.0
#: Utilisation rises with at least this power of the load, though two noisy readings may show less.
_FLATTEST = 0.5
#: Large upward steps that do not count, so that a start far below the capacity costs no accuracy.
MOST_FREE = 2
#: Where to look below a saturation, as share of it, and below a failure that was a near one.
_BELOW_SATURATION = 0.95
_BELOW_FAILURE = 0.85
#: A failure with less utilisation than this is near.
_NEAR = 2.0


def find_capacity(
    probe: Callable[[float], Probe],
    start: float,
    levels: LevelRange,
    tolerance: float = TOLERANCE,
    at_most: int = 5,
    known: Sequence[Probe] = (),
) -> Bracket:
    """What `CapacitySearch` finds with ``probe``, which measures one level."""
    search = CapacitySearch(start, levels, tolerance, at_most, known)
    while (level := search.ask()) is not None:
        search.tell(probe(level))
    return Bracket.of(search.probes)


class CapacitySearch:
    """Brackets the capacity within ``tolerance``, or as near as ``at_most`` probes allow.

    Says which level to try next, and receives the result.

    Args:
        start: First level to try when nothing is ``known``.
        levels: Allowed levels.
        tolerance: Distance of the floor from the capacity, as a share, that is good enough.
        at_most: Most probes, not counting those already known, or up to `MOST_FREE` that doubled
            the load and still passed.
        known: What was measured before.
    """

    def __init__(
        self,
        start: float,
        levels: LevelRange,
        tolerance: float = TOLERANCE,
        at_most: int = 5,
        known: Sequence[Probe] = (),
    ) -> None:
        self.probes = list(known)
        self._start, self._levels, self._tolerance = start, levels, tolerance
        self._left, self._free = at_most, MOST_FREE

    def ask(self) -> float | None:
        """The next level; None when the capacity is known well enough, or no probe is left."""
        bracket = Bracket.of(self.probes)
        if self._left <= 0 or bracket.closed(self._tolerance) or _at_an_end(bracket, self._levels):
            return None
        level = next_level(self.probes, self._tolerance) if self.probes else self._start
        level = self._levels.nearest(level)
        if self._levels.whole:
            level = _within(bracket, level)
        return None if any(p.level == level for p in self.probes) else level

    def tell(self, probe: Probe) -> None:
        """What came of the level that was asked for."""
        if self._free and _far_up(Bracket.of(self.probes), probe):
            self._free -= 1
        else:
            self._left -= 1
        self.probes.append(probe)


def _within(bracket: Bracket, level: float) -> float:
    """The whole number nearest to ``level`` that lies inside the bracket, where one does."""
    if bracket.ceiling is not None:
        level = min(level, bracket.ceiling.level - 1.0)
    return level if bracket.floor is None else max(level, bracket.floor.level + 1.0)


def _far_up(before: Bracket, probe: Probe) -> bool:
    """The load was doubled at least and still passed: the start was far below the capacity."""
    floor = before.floor
    return floor is not None and probe.passed and probe.level >= 2.0 * floor.level


def _at_an_end(bracket: Bracket, levels: LevelRange) -> bool:
    if bracket.floor is not None and bracket.floor.level >= levels.highest:
        return True
    return bracket.ceiling is not None and bracket.ceiling.level <= levels.lowest


def crossing(floor: Probe, ceiling: Probe) -> float:
    """Where the utilisation is 1 on a line between logarithms; without readings, the middle."""
    low, high = floor.slo_utilisation, ceiling.slo_utilisation
    if low is None or high is None or not 0.0 < low <= 1.0 < high:
        return math.sqrt(floor.level * ceiling.level)
    share = -math.log(low) / (math.log(high) - math.log(low))
    return floor.level * math.exp(share * math.log(ceiling.level / floor.level))


def next_level(probes: Sequence[Probe], tolerance: float = TOLERANCE) -> float:
    """The most telling level to try after ``probes``, of which there is at least one."""
    bracket = Bracket.of(probes)
    floor, ceiling = bracket.floor, bracket.ceiling
    if floor is None and any(p.undecided for p in probes):
        return _above_undecided(probes, ceiling)
    if ceiling is None:
        assert floor is not None
        return floor.level * _growth([p for p in probes if p.passed], tolerance)
    bound = _bound_below(ceiling)
    if floor is None:
        return bound
    if saturated(ceiling) and floor.level * (1.0 + tolerance) < bound:
        return bound
    # A little beyond the guess, so that the next probe closes the bracket from the other side.
    beyond = tolerance / 4 if probes[-1].passed else -tolerance / 4
    guess = crossing(floor, ceiling) * (1.0 + beyond)
    if bracket.top < ceiling.level:
        guess = min(guess, math.sqrt(floor.level * bracket.top))
    step = 1.0 + min(tolerance / 2, bracket.gap / 3)
    return min(max(guess, floor.level * step), bracket.top / step)


def _above_undecided(probes: Sequence[Probe], ceiling: Probe | None) -> float:
    """Where there are more answers: higher up, where nothing failed yet."""
    highest = max(p.level for p in probes if p.undecided)
    return 2.0 * highest if ceiling is None else math.sqrt(highest * ceiling.level)


def _growth(passed: Sequence[Probe], tolerance: float) -> float:
    """Up to where the utilisation would be 1 if it rose as it did between the two highest loads.

    From a single load, latency is assumed to rise as the load does; while there is much margin,
    the step is large.
    """
    *_, below, floor = (None, *sorted(passed, key=lambda p: p.level))
    if floor.slo_utilisation is None:
        return 2.0
    if floor.slo_utilisation < _AT_EASE:
        return _FAR
    slope = 1.0
    if below is not None and below.slo_utilisation:
        slope = math.log(floor.slo_utilisation / below.slo_utilisation) / math.log(
            floor.level / below.level
        )
        slope = max(slope, _FLATTEST)
    to_bound = -math.log(min(floor.slo_utilisation, 1.0 - tolerance))
    return _FAR if to_bound >= slope * math.log(_FAR) else math.exp(to_bound / slope)


def _bound_below(ceiling: Probe) -> float:
    if saturated(ceiling) and ceiling.served_per_s:
        return _BELOW_SATURATION * ceiling.served_per_s
    slo_utilisation = ceiling.slo_utilisation
    if slo_utilisation is not None and slo_utilisation < _NEAR:
        return ceiling.level * _BELOW_FAILURE
    if slo_utilisation is not None and ceiling.served_per_s is None:
        # a closed loop: beyond its capacity, clients only wait
        return ceiling.level / slo_utilisation
    return ceiling.level * 0.5
