"""From a candidate to its score: which loads to put on it, and when it has lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tuner.bench.stepping import FromAbove
from tuner.errors import ClientLimitError, LoadFailedError, OutOfTimeError
from tuner.score.capacity import NoResult, Probe, find_capacity, next_level, saturated
from tuner.score.load_plan import LoadPlan
from tuner.score.point import Point, Score, score_points
from tuner.score.trial import TrialState
from tuner.spec.objective import Goal, Objective

#: Measurements of a candidate at the most, the race included.
MOST_PROBES = 5
#: An informative candidate that lost the race is measured at this share of what it answered there.
WELL_BELOW_SATURATION = 0.75


@dataclass(frozen=True)
class Race:
    """What a candidate must stand to be measured in full.

    Attributes:
        to_beat: Level the incumbent sustains times one plus the smallest gain worth having.
        rate_to_beat: The same in inferences per second, for closed loops: how many clients wait is
            not what they get (Little's law), so one that fails has only lost where it answers
            less than that, too.
        informative: Where it fails there it is measured once more, where it should pass.
        second: Where it fails there by no more than noise; one that stands it has not lost.
    """

    to_beat: float
    rate_to_beat: float | None = None
    informative: bool = False
    second: SecondChance | None = None

    def lost(self, point: Point) -> bool:
        """A closed loop that fails but answers more may be the better one with fewer clients.

        With fewer than it failed at it answers no more than there.
        """
        if point.passed or point.undecided:
            return False
        rate = point.measurement.throughput_infer_per_s
        return self.rate_to_beat is None or rate < self.rate_to_beat


@dataclass(frozen=True)
class Evaluation:
    """Every point measured, and the score.

    Attributes:
        limit: What ended the measuring where that was not the config: the load generator, which
            could not send more. None where the score is the config's own.
    """

    state: TrialState
    points: tuple[Point, ...]
    score: Score
    limit: str | None = None


@dataclass(frozen=True)
class SecondChance:
    """Of a candidate that nearly stood the load to beat.

    Attributes:
        near_miss: SLO utilisation up to which a lost race is one: two measurements of one config
            at one load may differ by as much.
        measure: At the load that the incumbent itself stands, under other arrivals.
    """

    near_miss: float
    measure: Callable[[], Point]


def evaluate(
    measure: Callable[[float], Point],
    objective: Objective,
    plan: LoadPlan,
    start: float,
    *,
    at_most: int = MOST_PROBES,
) -> Evaluation:
    """Measures a deployed candidate to its capacity.

    Args:
        measure: One level on the deployed candidate.
        objective: What is scored.
        plan: Levels to use.
        start: First level; lowered until a result comes.
        at_most: Measurements.
    """
    capacity = _Capacity(measure, plan, at_most)
    capacity.search(start)
    return capacity.evaluation(TrialState.MEASURED, objective, capacity.points)


def race(
    measure: Callable[[float], Point],
    objective: Objective,
    plan: LoadPlan,
    rules: Race,
    *,
    at_most: int = MOST_PROBES,
) -> Evaluation:
    """As `evaluate`, unless it fails at the load to beat: then it cannot win."""
    capacity = _Capacity(measure, plan, at_most)
    if capacity.lost(rules):  # the race gives the bound
        return capacity.evaluation(TrialState.PRUNED, objective, capacity.points[:1])
    capacity.search(rules.to_beat)
    return capacity.evaluation(TrialState.MEASURED, objective, capacity.points)


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
    """It missed an SLO by no more than up to this utilisation, and the server kept up."""
    return (
        not saturated(probe) and probe.slo_utilisation is not None and probe.slo_utilisation <= most
    )


def _well_below(lost: Probe) -> float:
    """Where a candidate that lost the race should pass, with a latency that tells of its work."""
    if saturated(lost) and lost.served_per_s:
        return WELL_BELOW_SATURATION * lost.served_per_s
    return next_level([lost])


class _Capacity:
    """The search of one candidate's capacity: the race first, then as far as its score needs."""

    def __init__(self, measure: Callable[[float], Point], plan: LoadPlan, at_most: int) -> None:
        self._measure = measure
        self._plan = plan
        self._at_most = at_most
        self._above = FromAbove(self._point, plan.levels)
        self._limit: str | None = None
        self.points: list[Point] = []

    def evaluation(
        self, state: TrialState, objective: Objective, judged: Sequence[Point]
    ) -> Evaluation:
        return Evaluation(state, tuple(self.points), score_points(objective, judged), self._limit)

    def lost(self, race: Race) -> bool:
        """Whether it lost; one that nearly stood the load is tried at the incumbent's own.

        An informative one that is far from it is measured once more.
        """
        point = self._point(self._plan.levels.nearest(race.to_beat))
        if not race.lost(point):
            return False
        with suppress(LoadFailedError, ClientLimitError, OutOfTimeError):  # it has a result
            if race.second is not None and nearly(point, race.second.near_miss):
                self.points.append(race.second.measure())
                return race.lost(self.points[-1])
            if race.informative:
                self._point(self._plan.levels.nearest(_well_below(point)))
        return True

    def search(self, start: float) -> None:
        known: list[Probe] = list(self.points)
        try:
            if not known:
                known = [self._above.result(start), *self._above.drowned]
            left, levels = self._at_most - len(self.points), self._above.levels
            bracket = find_capacity(self._beyond, start, levels, at_most=left, known=known)
        except (ClientLimitError, OutOfTimeError) as error:
            if not self._sustained_any:
                raise  # what was measured, if anything, says nothing about the config
            self._limit = error.message
            return
        floor, client_limit = bracket.floor, self._above.client_limit
        if client_limit and floor is not None and floor.level >= levels.highest:
            self._limit = client_limit.message

    def _beyond(self, level: float) -> Probe:
        """A load from which no result comes is too much where a lower one has passed."""
        try:
            return self._point(level)
        except LoadFailedError:
            if not self._sustained_any:
                raise
            return NoResult(level)

    @property
    def _sustained_any(self) -> bool:
        """Whether a load met every SLO; the search asks for none below that."""
        return any(p.passed for p in self.points)

    def _point(self, level: float) -> Point:
        self.points.append(self._measure(level))
        return self.points[-1]
