"""From a candidate to its score: which loads to put on it, and when it has lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tuner.errors import ClientLimitError, LoadFailedError
from tuner.load.measurement import Arrivals
from tuner.run.trial import TrialState
from tuner.score.capacity import LevelRange, Probe, find_capacity, next_level
from tuner.score.judge import passes, stress
from tuner.score.point import Point, Score, score_points
from tuner.spec.objective import Goal, Objective
from tuner.spec.workload import ClosedArrivals, Workload

#: Measurements of a candidate at the most, the race included.
MOST_PROBES = 5
#: A telling candidate that lost the race is measured at this share of what it answered there.
WELL_BELOW_SATURATION = 0.75


@dataclass(frozen=True)
class LoadPlan:
    """Which levels a run may ask for.

    Attributes:
        listed: Levels fixed by the spec, ascending; None when the capacity is searched.
        levels: Limits of that search.
    """

    arrivals: Arrivals
    listed: tuple[float, ...] | None
    levels: LevelRange


@dataclass(frozen=True)
class Evaluation:
    """Every point measured, and the score."""

    state: TrialState
    points: tuple[Point, ...]
    score: Score


def load_plan(workload: Workload, objective: Objective) -> LoadPlan:
    arrivals = workload.arrivals
    kind = Arrivals(arrivals.kind)
    if isinstance(arrivals, ClosedArrivals):
        given: Sequence[float] | None = arrivals.concurrency
        levels = LevelRange(1.0, float(arrivals.max_concurrency), whole=True)
    else:
        given = arrivals.rate
        levels = LevelRange(0.1, arrivals.max_rate)
    if objective.at_level is not None:
        given = (objective.at_level,)
    listed = None if given is None else tuple(sorted(float(level) for level in given))
    return LoadPlan(kind, listed, levels)


def evaluate(
    measure: Callable[[float], Point],
    objective: Objective,
    plan: LoadPlan,
    start: float,
    to_beat: float | None,
    telling: bool = False,
) -> Evaluation:
    """Measures a deployed candidate as far as its score needs.

    Args:
        measure: One level on the deployed candidate.
        objective: What is scored.
        plan: Levels to use.
        start: First level of a capacity search without an incumbent.
        to_beat: Level the incumbent sustains times one plus the smallest gain worth having;
            a candidate that fails there cannot win and is measured no further (racing).
        telling: Where it fails there it is measured once more, where it should pass.
    """
    if plan.listed is not None:
        return _at_listed_levels(measure, objective, plan.listed)
    return _capacity(measure, objective, plan, start, to_beat, telling)


def _at_listed_levels(
    measure: Callable[[float], Point], objective: Objective, listed: Sequence[float]
) -> Evaluation:
    goodput = objective.goal is Goal.MAXIMIZE_GOODPUT
    points: list[Point] = []
    for level in listed:
        try:
            points.append(measure(level))
        except ClientLimitError:
            if goodput and points:
                break  # each of them passed
            raise
        if goodput and not passes(points[-1].slo):
            break
    return Evaluation(TrialState.MEASURED, tuple(points), score_points(objective, points))


def probe_of(point: Point) -> Probe:
    """What the capacity search reads from a measured point."""
    measurement = point.measurement
    load = measurement.load
    served = measurement.throughput_infer_per_s / measurement.batch_size
    return Probe(
        level=load.level,
        passed=passes(point.slo),
        served_per_s=served if load.arrivals.open_loop else None,
        stress=stress(point.slo),
    )


def _well_below(lost: Probe) -> float:
    """Where a candidate that lost the race should pass, with a latency that tells of its work."""
    if lost.saturated and lost.served_per_s:
        return WELL_BELOW_SATURATION * lost.served_per_s
    return next_level([lost])


def _capacity(
    measure: Callable[[float], Point],
    objective: Objective,
    plan: LoadPlan,
    start: float,
    to_beat: float | None,
    telling: bool,
) -> Evaluation:
    points: list[Point] = []

    def probe(level: float) -> Probe:
        points.append(measure(level))
        return probe_of(points[-1])

    def beyond(level: float) -> Probe:
        """A load from which no result comes is too much where a lower one has passed."""
        try:
            return probe(level)
        except LoadFailedError:
            stood = [p.measurement.load.level for p in points if passes(p.slo)]
            if not stood or level <= max(stood):
                raise
            return Probe(level, passed=False)

    state, known = TrialState.MEASURED, []
    try:
        if to_beat is not None:
            known = [probe(plan.levels.nearest(to_beat))]
        if known and not known[0].passed:
            state = TrialState.PRUNED
            if telling:
                with suppress(LoadFailedError):  # the race is its result
                    probe(plan.levels.nearest(_well_below(known[0])))
        else:
            find_capacity(beyond, start, plan.levels, at_most=MOST_PROBES - len(known), known=known)
    except ClientLimitError:
        if state is TrialState.MEASURED and not any(passes(p.slo) for p in points):
            raise  # what was measured, if anything, says nothing about the config
    judged = points[:1] if state is TrialState.PRUNED else points  # the race gives the bound
    return Evaluation(state, tuple(points), score_points(objective, judged))
