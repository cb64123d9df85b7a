"""Which loads a run may ask for, and which is next: one rule for search, rounds and soak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tuner.measurement.measurement import Arrivals
from tuner.measurement.window import lowest_rate
from tuner.score.capacity import Bracket, LevelRange, NoResult, Probe, crossing, saturated
from tuner.score.judge import SloOutcome
from tuner.spec.slo import Objective, Slo, tail_shares
from tuner.spec.workload import ClosedArrivals, RecordingArrivals, SequenceArrivals, Workload


@dataclass(frozen=True)
class LoadPlan:
    """Levels of a run.

    Attributes:
        listed: Levels fixed by the spec, ascending; None when the capacity is searched.
        levels: Limits of that search.
    """

    arrivals: Arrivals
    listed: tuple[float, ...] | None
    levels: LevelRange

    @property
    def searches_rates(self) -> bool:
        """Whether the capacity is a rate to be found: no loads are listed, and none are clients."""
        return self.listed is None and self.arrivals.open_loop


def lowest_level(slos: Sequence[Slo], shares: Mapping[str, float], window_s: float) -> float:
    """The lowest level at which a window holds what each stream's percentiles need of requests."""
    return max(
        lowest_rate(tail_shares(slo for slo in slos if slo.holds_for(stream)), window_s) / share
        for stream, share in shares.items()
    )


def load_plan(
    workload: Workload,
    objective: Objective,
    slos: Sequence[Slo] = (),
    shares: Mapping[str, float] = MappingProxyType({"": 1.0}),
    recorded_per_s: float = 1.0,
) -> LoadPlan:
    """The levels to measure, without rates at which the longest window is too short.

    Args:
        shares: The parts of the streams that the level is of.
        recorded_per_s: The mean rate of a recording, if there is one; without it, levels at a pace
            of its own are not known, only that they are fixed.
    """
    arrivals = workload.arrivals
    kind = Arrivals(arrivals.kind)
    if isinstance(arrivals, ClosedArrivals):
        given: Sequence[float] | None = arrivals.concurrency
        levels = LevelRange(1.0, float(arrivals.max_concurrency), integer=True)
    else:
        given = arrivals.rate
        lowest = lowest_level(slos, shares, float(workload.max_window))
        step = 0.0
        if isinstance(arrivals, RecordingArrivals) and arrivals.pace is not None:
            given = [pace * recorded_per_s for pace in arrivals.pace]
        if isinstance(arrivals, SequenceArrivals):  # whole numbers of sequences at once
            step = 1.0 / float(arrivals.interval)
            lowest = step * math.ceil(lowest / step)
        levels = LevelRange(min(lowest, arrivals.max_rate), arrivals.max_rate, step=step)
    if objective.at_level is not None:
        given = (objective.at_level,)
    listed = None if given is None else tuple(sorted(float(level) for level in given))
    return LoadPlan(kind, listed, levels)


#: Capacities found by the search are within this share of the truth, noise aside.
TOLERANCE = 0.03
#: Below this utilisation nothing is known of the capacity yet: raise the load far, to saturate it.
_AT_EASE = 0.5
_FAR = 3.0
#: Utilisation rises with at least this power of the load, though two noisy readings may show less.
_FLATTEST = 0.5
#: Large upward steps that do not count, so that a start far below the capacity costs no accuracy.
MOST_FREE = 2
#: Where to look below a failure that was a near one: one with less utilisation than `_NEAR`.
_BELOW_FAILURE = 0.85
_NEAR = 2.0
#: Near its bound, the tail of the latency rises with this power of the load at least: in a queue at
#: 75 % of its saturation it is 0.75 / (1 - 0.75).
STEEP = 3.0


@dataclass(frozen=True)
class StepRule:
    """How the next load is chosen.

    Attributes:
        first: Largest first step from the only load, as a share. None: steps are as large as the
            utilisation says.
        least: The smallest first step down; both are doubled with each further load.
        of_served: Tried below a saturated server, as a share of what it answered.
        close: A load that passed and used up this share of its bound needs no failure above it.
        wide: A bracket that is narrower is not divided any more.
        tolerance: How far a load between two others is at least from each, about.
    """

    first: float | None = None
    least: float = 0.0
    of_served: float = 0.95
    close: float = math.inf
    wide: float = 0.0
    tolerance: float = TOLERANCE


#: Those of the search, which ends by itself.
SEARCH = StepRule()


def next_load(
    probes: Sequence[Probe], levels: LevelRange, steps: StepRule = SEARCH
) -> float | None:
    """The most telling load after ``probes``, of which there is at least one; None: no other is."""
    bracket = Bracket.of(probes)
    floor, ceiling = bracket.floor, bracket.ceiling
    used_up = 0.0 if floor is None or levels.integer else floor.slo_utilisation or 0.0
    if (used_up >= steps.close and len(probes) > 1) or bracket.gap < steps.wide:
        return None
    few = [p.level for p in probes if p.outcome is SloOutcome.TOO_FEW]
    if floor is None and few and steps.first is None:
        highest = max(few)  # a load with more answers
        level = 2.0 * highest if ceiling is None else math.sqrt(highest * ceiling.level)
    elif floor is not None and ceiling is not None:
        level = _between(probes, bracket, steps)
    elif floor is not None:
        level = floor.level * _growth(probes, steps)
    elif ceiling is not None:
        level = _below(ceiling, len(probes), steps)
    else:
        return None  # too few answers for a verdict
    level = levels.nearest(level)
    if levels.unit:
        level = levels.nearest(_within(bracket, level, levels.unit))
    return None if any(p.level == level for p in probes) else level


def _within(bracket: Bracket, level: float, step: float) -> float:
    """The step nearest to ``level`` that lies inside the bracket, where one does."""
    if bracket.ceiling is not None:
        level = min(level, bracket.ceiling.level - step)
    return level if bracket.floor is None else max(level, bracket.floor.level + step)


def _between(probes: Sequence[Probe], bracket: Bracket, steps: StepRule) -> float:
    """The load of utilisation 1, or one below the saturation if that is far above."""
    floor, ceiling = bracket.floor, bracket.ceiling
    assert floor is not None
    assert ceiling is not None
    if saturated(ceiling):
        bound = _below(ceiling, len(probes), steps)
        if floor.level * (1.0 + steps.tolerance) < bound:
            return bound
    # A little beyond the guess, so that the next probe closes the bracket from the other side.
    beyond = steps.tolerance / 4 if probes[-1].passed else -steps.tolerance / 4
    guess = crossing(floor, ceiling) * (1.0 + beyond)
    if bracket.top < ceiling.level:
        guess = min(guess, math.sqrt(floor.level * bracket.top))
    step = 1.0 + min(steps.tolerance / 2, bracket.gap / 3)
    return min(max(guess, floor.level * step), bracket.top / step)


def _growth(probes: Sequence[Probe], steps: StepRule) -> float:
    """Up to where utilisation would be 1 if it rose as between the two highest loads."""
    if steps.first is not None:
        return 1.0 + max(steps.first, steps.least * 2.0 ** (len(probes) - 1))
    *_, below, floor = (None, *sorted((p for p in probes if p.passed), key=lambda p: p.level))
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
    to_bound = -math.log(min(floor.slo_utilisation, 1.0 - steps.tolerance))
    return _FAR if to_bound >= slope * math.log(_FAR) else math.exp(to_bound / slope)


def _below(ceiling: Probe, count: int, steps: StepRule) -> float:
    """Below what was answered, or could be sent; else to about where the utilisation would be 1."""
    served = ceiling.served_per_s
    too_few = isinstance(ceiling, NoResult) and served is not None and served < ceiling.level
    if served and (saturated(ceiling) or too_few):
        return steps.of_served * served
    slo_utilisation = ceiling.slo_utilisation
    if steps.first is not None:
        least, most = (step * 2.0 ** (count - 1) for step in (steps.least, steps.first))
        over = most if slo_utilisation is None else slo_utilisation ** (1.0 / STEEP) - 1.0
        return ceiling.level / (1.0 + min(max(over, least), most))
    if slo_utilisation is not None and slo_utilisation < _NEAR:
        return ceiling.level * _BELOW_FAILURE
    if slo_utilisation is not None and ceiling.served_per_s is None:
        # a closed loop: beyond its capacity, clients only wait
        return ceiling.level / slo_utilisation
    return ceiling.level * 0.5


class CapacitySearch:
    """Brackets the capacity within ``tolerance``, or as near as ``at_most`` probes allow.

    Args:
        start: First level to try when nothing is ``known``.
        tolerance: Distance of the floor from the capacity, as a share, that is good enough.
        at_most: Most new probes, without up to `MOST_FREE` that doubled the load and still passed.
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
        self._start, self.levels, self._steps = start, levels, StepRule(tolerance=tolerance)
        self._left, self._free = at_most, MOST_FREE

    def ask(self) -> float | None:
        """The next level; None when the capacity is known well enough, or no probe is left."""
        bracket, levels = Bracket.of(self.probes), self.levels
        at_top = bracket.floor is not None and bracket.floor.level >= levels.highest
        at_bottom = bracket.ceiling is not None and bracket.ceiling.level <= levels.lowest
        if self._left <= 0 or bracket.closed(self._steps.tolerance) or at_top or at_bottom:
            return None
        if not self.probes:
            return levels.nearest(self._start)
        return next_load(self.probes, levels, self._steps)

    def tell(self, probe: Probe) -> None:
        """What came of the level that was asked for."""
        floor = Bracket.of(self.probes).floor
        if self._free and floor is not None and probe.passed and probe.level >= 2.0 * floor.level:
            self._free -= 1  # the start was far below the capacity
        else:
            self._left -= 1
        self.probes.append(probe)
