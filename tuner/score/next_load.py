"""The loads that a run may measure, and the next one: one rule for search, rounds and soak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tuner.measurement.measurement import Arrivals
from tuner.measurement.window import lowest_rate
from tuner.score.capacity import Bracket, LevelRange, NoResult, Probe, crossing, saturated
from tuner.score.judge import SloOutcome
from tuner.spec.arrivals import ClosedArrivals, RecordingArrivals, SequenceArrivals
from tuner.spec.slo import Objective, Slo, tail_shares
from tuner.spec.workload import Workload


@dataclass(frozen=True)
class LoadPlan:
    """The levels of a run: requests per second of an open loop, clients of a closed one.

    Attributes:
        listed: The levels that the spec lists, ascending; None where the capacity is searched.
        levels: The range of that search.
    """

    arrivals: Arrivals
    listed: tuple[float, ...] | None
    levels: LevelRange

    @property
    def searches_rates(self) -> bool:
        """Whether the run searches the capacity as a rate: an open loop without listed rates."""
        return self.listed is None and self.arrivals.open_loop


def lowest_level(
    slos: Sequence[Slo], shares: Mapping[str, float], window_s: float, *, brief: bool = False
) -> float:
    """The lowest level, in requests per second, at which a window has enough requests.

    That is as many as the percentiles in the SLOs of each stream need.

    Args:
        shares: Each stream's part of the level, above 0.
        window_s: The length of the window, in seconds.
        brief: As in `requests_for`.
    """
    return max(
        lowest_rate(tail_shares(s for s in slos if s.holds_for(stream)), window_s, brief=brief)
        / share
        for stream, share in shares.items()
    )


def load_plan(
    workload: Workload,
    objective: Objective,
    slos: Sequence[Slo] = (),
    shares: Mapping[str, float] = MappingProxyType({"": 1.0}),
    recorded_per_s: float = 1.0,
) -> LoadPlan:
    """The levels to measure, without rates at which the longest window has too few requests.

    Args:
        shares: Each stream's part of the level, for streams with a share.
        recorded_per_s: The mean rate of the recording, in requests per second. With the default,
            levels of a recording with a ``pace`` are right in number only.
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


#: Largest error of a capacity by the search, as a share, without noise.
TOLERANCE = 0.03
#: Below this utilisation the capacity is unknown: the load is multiplied by `_FAR`.
_AT_EASE = 0.5
_FAR = 3.0
#: Least exponent of the load by which utilisation rises: two noisy values may show less.
_FLATTEST = 0.5
#: Large upward steps that do not count as probes: a start far below the capacity costs none.
MOST_FREE = 2
#: The next load as a share of a failed one, whose utilisation was less than `_NEAR`.
_BELOW_FAILURE = 0.85
_NEAR = 2.0
#: Least exponent of the load by which the tail latency rises near its bound: in a queue at 75% of
#: its saturation it is 0.75 / (1 - 0.75).
STEEP = 3.0


@dataclass(frozen=True)
class StepRule:
    """How the next load is chosen.

    Attributes:
        first: Largest step from the first load, as a share. None: the utilisation alone determines
            the step.
        least: Smallest step from the first load, as a share; with each further load, both double.
        of_served: The next load below a saturated one, as a share of what was answered there.
        close: If a load passes with at least this utilisation, no load above it is needed.
        wide: A bracket narrower than this share is not divided further.
        tolerance: A load inside a bracket has about half this distance, a share, from either end.
    """

    first: float | None = None
    least: float = 0.0
    of_served: float = 0.95
    close: float = math.inf
    wide: float = 0.0
    tolerance: float = TOLERANCE


#: The steps of the search; `CapacitySearch` ends it.
SEARCH = StepRule()


def next_load(
    probes: Sequence[Probe], levels: LevelRange, steps: StepRule = SEARCH
) -> float | None:
    """The most informative level after at least one of ``probes``; None where none is left."""
    bracket = Bracket.of(probes)
    floor, ceiling = bracket.floor, bracket.ceiling
    used_up = 0.0 if floor is None or levels.integer else floor.slo_utilisation or 0.0
    if (used_up >= steps.close and len(probes) > 1) or bracket.gap < steps.wide:
        return None
    few = [p.level for p in probes if p.outcome is SloOutcome.TOO_FEW]
    if floor is None and few and steps.first is None:
        highest = max(few)  # a higher load gives more answers
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
    """The level nearest to ``level`` that is at least a ``step`` inside the bracket."""
    if bracket.ceiling is not None:
        level = min(level, bracket.ceiling.level - step)
    return level if bracket.floor is None else max(level, bracket.floor.level + step)


def _between(probes: Sequence[Probe], bracket: Bracket, steps: StepRule) -> float:
    """The load of utilisation 1; if that is unknown from saturation, a load below saturation."""
    floor, ceiling = bracket.floor, bracket.ceiling
    assert floor is not None
    assert ceiling is not None
    if saturated(ceiling):
        bound = _below(ceiling, len(probes), steps)
        if floor.level * (1.0 + steps.tolerance) < bound:
            return bound
    # A little beyond the estimate, so that the next probe narrows the bracket from the other side.
    beyond = steps.tolerance / 4 if probes[-1].passed else -steps.tolerance / 4
    guess = crossing(floor, ceiling) * (1.0 + beyond)
    if bracket.top < ceiling.level:
        guess = min(guess, math.sqrt(floor.level * bracket.top))
    step = 1.0 + min(steps.tolerance / 2, bracket.gap / 3)
    return min(max(guess, floor.level * step), bracket.top / step)


def _growth(probes: Sequence[Probe], steps: StepRule) -> float:
    """The factor to the load of utilisation 1, extrapolated from the two highest that passed."""
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
    """A load below the one answered, or sent; else about the load of utilisation 1."""
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
    """Encloses the capacity within ``tolerance``, or as closely as ``at_most`` probes allow.

    Args:
        start: The first level, unless there are results in ``known``.
        levels: The range of the search.
        tolerance: Largest distance of the floor from the capacity, as a share.
        at_most: Most new probes, without up to `MOST_FREE` that at least doubled the load and
            passed.
        known: Results of earlier probes.
    """

    def __init__(
        self,
        start: float,
        levels: LevelRange,
        tolerance: float = TOLERANCE,
        at_most: float = 5,
        known: Sequence[Probe] = (),
    ) -> None:
        self.probes = list(known)
        self._start, self.levels, self._steps = start, levels, StepRule(tolerance=tolerance)
        self._left, self._free = at_most, MOST_FREE

    def ask(self) -> float | None:
        """The next level; None where the capacity is within the tolerance, or no probe is left."""
        bracket, levels = Bracket.of(self.probes), self.levels
        at_top = bracket.floor is not None and bracket.floor.level >= levels.highest
        at_bottom = bracket.ceiling is not None and bracket.ceiling.level <= levels.lowest
        if self._left < 1 or bracket.closed(self._steps.tolerance) or at_top or at_bottom:
            return None
        if not self.probes:
            return levels.nearest(self._start)
        return next_load(self.probes, levels, self._steps)

    def tell(self, probe: Probe, cost: float = 1.0) -> None:
        """Adds the result at the level that `ask` returned; ``cost``: as how many it counts."""
        floor = Bracket.of(self.probes).floor
        if self._free and floor is not None and probe.passed and probe.level >= 2.0 * floor.level:
            self._free -= 1  # the start was far below the capacity
        else:
            self._left -= cost
        self.probes.append(probe)
