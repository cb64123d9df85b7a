"""The highest load that meets every SLO, found with few measurements.

A level that passes is a floor, one that fails a ceiling; the gap is closed by the ratio. Two
things make it short: an overloaded server tells its own saturation (it answers fewer requests
than are sent), and a candidate that fails at the incumbent's load is not looked at further.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Probe:
    """What one load level showed.

    Attributes:
        served_per_s: Throughput; None for closed loops.
        margin: Of the SLO that is nearest to being missed, as a share of its bound.
    """

    level: float
    passed: bool
    served_per_s: float | None = None
    margin: float | None = None


@dataclass(frozen=True)
class Bracket:
    """Highest level that passed and lowest that failed; None where none did."""

    passed: float | None = None
    failed: float | None = None

    def with_probe(self, probe: Probe) -> Bracket:
        if not probe.passed:
            lowest = probe.level if self.failed is None else min(self.failed, probe.level)
            return replace(self, failed=lowest)
        highest = probe.level if self.passed is None else max(self.passed, probe.level)
        # A pass above an earlier failure means that failure was noise or a mode of the load.
        overtaken = self.failed is not None and self.failed <= highest
        return Bracket(highest, None if overtaken else self.failed)

    def closed(self, tolerance: float) -> bool:
        """True when the capacity is known within ``tolerance`` (a share)."""
        if self.passed is None or self.failed is None:
            return False
        return self.failed <= self.passed * (1.0 + tolerance)


@dataclass(frozen=True)
class LevelRange:
    """Levels that may be asked for; ``whole`` for concurrency."""

    lowest: float
    highest: float
    whole: bool = False

    def nearest(self, level: float) -> float:
        level = min(max(level, self.lowest), self.highest)
        return float(round(level)) if self.whole else float(f"{level:.4g}")


#: Largest factor between levels while no ceiling (or no floor) is known.
GROWTH = 2.0
#: A server that answers less than this share of what is sent is saturated.
SATURATED = 0.97


def find_capacity(
    probe: Callable[[float], Probe],
    start: float,
    levels: LevelRange,
    tolerance: float = 0.04,
    at_most: int = 8,
    known: Bracket | None = None,
) -> Bracket:
    """Brackets the capacity within ``tolerance``, or as near as ``at_most`` probes allow.

    Args:
        probe: Measures one level.
        start: First level to try.
        levels: Allowed levels.
        tolerance: Ratio between ceiling and floor minus one that is good enough.
        at_most: Probes at the most.
        known: What is known before the first probe.
    """
    bracket = known or Bracket()
    tried: set[float] = {x for x in (bracket.passed, bracket.failed) if x is not None}
    level = levels.nearest(start)
    for _ in range(at_most):
        if level in tried:
            break
        result = probe(level)
        tried.add(level)
        bracket = bracket.with_probe(result)
        if bracket.closed(tolerance) or _at_an_end(bracket, levels):
            break
        level = levels.nearest(next_level(bracket, result, tolerance))
    return bracket


def _at_an_end(bracket: Bracket, levels: LevelRange) -> bool:
    if bracket.passed is not None and bracket.passed >= levels.highest:
        return True
    return bracket.failed is not None and bracket.failed <= levels.lowest


def next_level(bracket: Bracket, last: Probe, tolerance: float = 0.04) -> float:
    """The most telling level to try after ``last``.

    Without a ceiling: up by the margin that is left, since latency grows faster than load. With
    one: the geometric middle, below what an overloaded server answers.
    """
    if bracket.failed is None:
        assert bracket.passed is not None
        margin = GROWTH - 1.0 if last.margin is None else last.margin
        return bracket.passed * (1.0 + min(max(margin, tolerance), GROWTH - 1.0))
    ceiling = bracket.failed
    served = last.served_per_s
    if not last.passed and served is not None and served < SATURATED * last.level:
        ceiling = min(ceiling, served)
    if bracket.passed is None:
        return ceiling / GROWTH if ceiling == bracket.failed else ceiling * 0.9
    if bracket.passed >= ceiling:
        return math.sqrt(bracket.passed * bracket.failed)
    return math.sqrt(bracket.passed * ceiling)
