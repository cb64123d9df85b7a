"""From a candidate to its score: which loads to put on it, and when it has lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.load.measurement import Arrivals
from tuner.run.trial import TrialState
from tuner.score.capacity import Bracket, LevelRange, Probe, find_capacity, next_level
from tuner.score.judge import least_margin, passes
from tuner.score.point import Point, Score, score_points
from tuner.spec.model import ClosedArrivals, Workload
from tuner.spec.objective import Goal, Objective

#: Ratio minus one within which a capacity is good enough for the search.
TOLERANCE = 0.04
#: Probes for the first candidate, which has no incumbent to start from.
FIRST_PROBES = 12
#: Probes for each later one, the race included.
LATER_PROBES = 6


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
    """Every point measured, the score, and where the capacity lies (goodput only)."""

    state: TrialState
    points: tuple[Point, ...]
    score: Score
    bracket: Bracket | None


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
) -> Evaluation:
    """Measures a deployed candidate as far as its score needs.

    Args:
        measure: One level on the deployed candidate.
        objective: What is scored.
        plan: Levels to use.
        start: First level of a capacity search without an incumbent.
        to_beat: Level the incumbent sustains times one plus the smallest gain worth having;
            a candidate that fails there cannot win and is measured no further (racing).
    """
    if plan.listed is not None:
        return _at_listed_levels(measure, objective, plan.listed)
    return _capacity(measure, objective, plan, start, to_beat)


def _at_listed_levels(
    measure: Callable[[float], Point], objective: Objective, listed: Sequence[float]
) -> Evaluation:
    points: list[Point] = []
    bracket = Bracket()
    for level in listed:
        point = measure(level)
        points.append(point)
        bracket = bracket.with_probe(Probe(level, passes(point.slo)))
        if not passes(point.slo) and objective.goal is Goal.MAXIMIZE_GOODPUT:
            break
    return Evaluation(TrialState.MEASURED, tuple(points), score_points(objective, points), bracket)


def _capacity(
    measure: Callable[[float], Point],
    objective: Objective,
    plan: LoadPlan,
    start: float,
    to_beat: float | None,
) -> Evaluation:
    points: list[Point] = []

    def probe(level: float) -> Probe:
        point = measure(level)
        points.append(point)
        served = point.measurement.throughput_infer_per_s if plan.arrivals.open_loop else None
        return Probe(level, passes(point.slo), served, least_margin(point.slo))

    known: Bracket | None = None
    if to_beat is not None:
        race = probe(plan.levels.nearest(to_beat))
        known = Bracket().with_probe(race)
        if not race.passed:
            score = score_points(objective, points)
            return Evaluation(TrialState.PRUNED, tuple(points), score, known)
        start = next_level(known, race, TOLERANCE)
    probes = FIRST_PROBES if known is None else LATER_PROBES
    bracket = find_capacity(probe, start, plan.levels, TOLERANCE, probes, known)
    return Evaluation(TrialState.MEASURED, tuple(points), score_points(objective, points), bracket)
