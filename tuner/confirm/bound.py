"""Where utilisation is one, estimated from measurements near a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean

from tuner.score.capacity import Bracket, Probe, crossing, saturated

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


def chord(floor: Probe, ceiling: Probe, power: float = CHORD) -> float:
    """Where the utilisation is 1 on a line of it to this ``power`` over the load, see `CHORD`."""
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
        or probe.passed != (probe.slo_utilisation <= 1.0)
    ):
        return False
    low, high = NEAR
    return low <= probe.slo_utilisation <= high


def steepness(rounds: Sequence[Sequence[Probe]]) -> float | None:
    """The power of the load with which utilisation rises near the bound; None: too few near it.

    Least squares of log utilisation on log load within each round (so that differences between
    rounds do not count), over all rounds of a config.
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


def capacity_level(probes: Sequence[Probe], slope: float | None) -> float:
    """The level at which utilisation is one.

    Between a level that passed and one close above it that failed, it is where utilisation crosses
    one. Otherwise it is the mean of what each measurement near the bound gives with the ``slope``.
    Without such a measurement, it is the highest level that passed; if none passed, the lowest
    level tried, or what was answered there.
    """
    bracket = Bracket.of(probes)
    near = [p for p in probes if is_near(p)]
    if bracket.gap > WIDE and slope is not None and near:
        return geometric_mean(
            [p.level * (p.slo_utilisation or 1.0) ** (-1.0 / slope) for p in near]
        )
    if bracket.floor is not None and bracket.ceiling is not None:
        return min(chord(bracket.floor, bracket.ceiling), bracket.top)
    return bracket.capacity() or min(_most_served(p) for p in probes)


def _most_served(probe: Probe) -> float:
    served = probe.served_per_s
    return served if saturated(probe) and served else probe.level
