"""From a candidate to its score: which loads to put on it, and when it has lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tuner.bench.stepping import FromAbove
from tuner.errors import ClientLimitError, LoadFailedError, OutOfTimeError
from tuner.score.capacity import NoResult, Probe, saturated
from tuner.score.next_load import CapacitySearch, LoadPlan, Steps, next_load
from tuner.score.point import Point, Score, score_points
from tuner.score.trial import TrialState
from tuner.spec.slo import Goal, Objective
from tuner.spec.units import digits

#: At most this many measurements of a candidate, the race included.
MOST_PROBES = 5
#: An informative candidate that lost the race is measured so far below what it answered there that
#: its latency reflects its work.
WELL_BELOW = Steps(of_served=0.75)


@dataclass(frozen=True)
class Race:
    """The load a candidate must sustain to be measured in full.

    Attributes:
        to_beat: Level the incumbent sustains times one plus the smallest gain worth having.
        rate_to_beat: The same in inferences per second, for closed loops. The number of clients
            does not give their throughput (Little's law), so a candidate that fails at this level
            has lost only if it also answers less than this rate.
        informative: Measures a candidate that fails there once more, at a load it should pass; it
            may give no verdict. None: nothing is to be learnt from it.
        second: A second chance for one that fails there by no more than noise. If it sustains that
            load, it has not lost.
    """

    to_beat: float
    rate_to_beat: float | None = None
    informative: Callable[[float], Point] | None = None
    second: SecondChance | None = None

    def lost(self, point: Point) -> bool:
        """A closed loop that fails but answers more may be the better one with fewer clients.

        With fewer clients it answers no more than it did there.
        """
        if point.passed or point.undecided:
            return False
        rate = point.measurement.throughput_infer_per_s
        return self.rate_to_beat is None or rate < self.rate_to_beat


@dataclass(frozen=True)
class Evaluation:
    """Every point measured, and the score.

    Attributes:
        limit: Why measuring ended, where the load generator and not the config was the limit. None
            where the score is the config's own.
    """

    state: TrialState
    points: tuple[Point, ...]
    score: Score
    limit: str | None = None


@dataclass(frozen=True)
class SecondChance:
    """For a candidate that nearly sustained the load to beat.

    Attributes:
        near_miss: SLO utilisation up to which a lost race counts as a near miss: two measurements
            of one config at one load may differ by as much.
        measure: Measures at the load that the incumbent itself sustains, under other arrivals.
    """

    near_miss: float
    measure: Callable[[], Point]


@dataclass(frozen=True)
class Raced:
    """What a race measured: the load to beat first."""

    points: tuple[Point, ...]
    lost: bool

    def evaluation(self, objective: Objective) -> Evaluation:
        """The evaluation of a candidate that lost: the race gives its bound."""
        score = score_points(objective, self.points[:1])
        return Evaluation(TrialState.PRUNED, self.points, score)


def race(measure: Callable[[float], Point], plan: LoadPlan, rules: Race) -> Raced:
    """Measures a deployed candidate at the load to beat: one that fails there cannot win.

    One that nearly sustained the load is tried at the incumbent's own. An informative one that is
    far from it is measured once more.
    """
    first = measure(plan.levels.nearest(rules.to_beat))
    if not rules.lost(first):
        return Raced((first,), lost=False)
    with suppress(LoadFailedError, ClientLimitError, OutOfTimeError):  # it has a result
        if rules.second is not None and nearly(first, rules.second.near_miss):
            again = rules.second.measure()
            return Raced((first, again), rules.lost(again))
        below = next_load([first], plan.levels, WELL_BELOW)
        if rules.informative is not None and below is not None:
            return Raced((first, rules.informative(below)), lost=True)
    return Raced((first,), lost=True)


def evaluate(
    measure: Callable[[float], Point],
    objective: Objective,
    plan: LoadPlan,
    start: float,
    *,
    at_most: int = MOST_PROBES,
    known: Sequence[Point] = (),
) -> Evaluation:
    """Measures a deployed candidate to its capacity.

    Args:
        measure: One level on the deployed candidate.
        objective: What is scored.
        plan: Levels to use.
        start: First level when nothing is ``known``; lowered until a result comes.
        at_most: Measurements, those known included.
        known: What a race that it did not lose has measured.
    """
    points, above = list(known), FromAbove(measure, plan.levels)
    first = plan.levels.nearest(start)
    while not points:
        try:
            points.append(measure(first))
        except (ClientLimitError, LoadFailedError) as error:
            first = above.lower(error, first)
    seen: list[Probe] = [*points, *above.drowned]
    search = CapacitySearch(start, above.levels, at_most=at_most - len(points), known=seen)
    limit: str | None = None
    try:
        while (level := search.ask()) is not None:
            try:
                points.append(measure(level))
                search.tell(points[-1])
            except LoadFailedError:
                if not any(p.passed for p in points):
                    raise
                search.tell(NoResult(level))  # too much, since a lower one has passed
            except ClientLimitError as error:
                above.lower(error, level)
                search.levels = above.levels
    except (ClientLimitError, OutOfTimeError) as error:
        if not any(p.passed for p in points):
            raise  # what was measured, if anything, says nothing about the config
        limit = error.message
    score, most = score_points(objective, points), above.levels.limit(search.probes)
    if most < math.inf:  # whatever it answered, it is equal to others that sustain that
        limit = f"it sustains all that the load generator can send, {digits(most, 4)}/s"
        score = replace(score, value=most * points[0].measurement.batch_size)
    return Evaluation(TrialState.MEASURED, tuple(points), score, limit)


def evaluate_listed(
    measure: Callable[[float], Point], objective: Objective, listed: Sequence[float]
) -> Evaluation:
    """Measures a deployed candidate at the spec's own levels, ascending."""
    goodput = objective.goal is Goal.MAXIMIZE_GOODPUT
    points: list[Point] = []
    limit = None
    for level in listed:
        try:
            points.append(measure(level))
        except (ClientLimitError, OutOfTimeError) as error:
            if goodput and points:
                limit = error.message
                break  # each of them passed
            raise
        if goodput and not points[-1].passed:
            break
    return Evaluation(TrialState.MEASURED, tuple(points), score_points(objective, points), limit)


def nearly(probe: Probe, most: float) -> bool:
    """It missed an SLO, but its utilisation is at most this, and the server kept up."""
    return (
        not saturated(probe) and probe.slo_utilisation is not None and probe.slo_utilisation <= most
    )
