"""From a candidate to its score: which loads are measured, and when the candidate has lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from tuner.errors import (
    ClientLimitError,
    LoadFailedError,
    ModelFailsError,
    OutOfTimeError,
    TrialError,
)
from tuner.load.validity import client_behind, client_kept_up
from tuner.measurement.measurement import Measurement
from tuner.meter.again import TOO_HIGH
from tuner.reason import Reason, ReasonKind
from tuner.score.capacity import LevelRange, NoResult, Probe, saturated
from tuner.score.judge import SloOutcome
from tuner.score.next_load import CapacitySearch, LoadPlan, StepRule, next_load
from tuner.score.point import Point, Score, score_points
from tuner.score.trial import TrialState
from tuner.spec.slo import Goal, Objective

#: Most measurements of a candidate, the race included.
MOST_PROBES = 5
#: An informative candidate that lost the race is measured at this share of its throughput there, so
#: that its latency shows its service time.
WELL_BELOW = StepRule(of_served=0.75)
#: After a load that could not be sent, the next is this share of the rate sent, where it is known.
UNSENT = StepRule(of_served=0.9)

Result = TypeVar("Result")


@dataclass
class ClientCeiling:
    """What the load generator can send, by the measurements so far.

    Attributes:
        most: Upper bound on the levels to measure.
        sent: The highest level that was sent.
    """

    most: float = math.inf
    sent: float = 0.0

    @classmethod
    def seen(cls, measured: Iterable[Measurement]) -> ClientCeiling:
        """The ceiling by earlier measurements."""
        ceiling = cls()
        for m in measured:
            if client_kept_up(m):
                ceiling.kept_up(m.load.level)
            else:
                ceiling.fell_behind(client_behind(m), m.load.level)
        return ceiling

    def kept_up(self, level: float) -> None:
        self.sent = max(self.sent, level)
        self.most = max(self.most, level)

    def fell_behind(self, error: ClientLimitError, level: float) -> None:
        """Lowers the bound, unless a level this high was sent before."""
        lower = below_unsent(error, level, LevelRange(0.0, math.inf))
        if level > self.sent and lower is not None:
            self.most = max(min(self.most, lower), self.sent)


@dataclass
class MeasureOrLower(Generic[Result]):
    """Measures at a level, or at the first lower one that gives a result.

    Attributes:
        measure: Measures at a level.
        levels: The allowed levels, limited to those that the load generator can send once known.
        no_result_at: Levels that were sent and gave no result.
        steps: The number of times that the level was lowered.
    """

    measure: Callable[[float], Result]
    levels: LevelRange
    no_result_at: list[NoResult] = field(default_factory=list)
    steps: int = 0

    def result(self, level: float) -> Result:
        """The first result from ``level`` downward.

        Raises:
            TrialError: No level gives a result, or the model itself fails.
        """
        level = self.levels.nearest(level)
        while True:
            try:
                return self.measure(level)
            except (ClientLimitError, LoadFailedError) as error:
                level = self.lower(error, level)

    def lower(self, error: TrialError, level: float) -> float:
        """The next level after ``level`` gave no result.

        Raises:
            TrialError: No lower level is left, or the model itself fails: the given ``error``.
        """
        self.steps += 1
        lower = below_unsent(error, level, self.levels)
        if lower is None or self.steps > TOO_HIGH.at_most or isinstance(error, ModelFailsError):
            raise error
        if isinstance(error, ClientLimitError):
            limited = not self.levels.integer  # fewer clients may have a higher throughput
            self.levels = replace(self.levels, highest=lower, limited=limited)
        else:
            self.no_result_at.append(NoResult(level))
        return lower


def below_unsent(error: TrialError, level: float, levels: LevelRange) -> float | None:
    """The next level below one that gave no result; None where none is left."""
    sent_per_s = error.sent_per_s if isinstance(error, ClientLimitError) else None
    return next_load([NoResult(level, sent_per_s)], levels, UNSENT)


@dataclass(frozen=True)
class Race:
    """The load a candidate must sustain to be measured in full.

    Attributes:
        to_beat: The level that the incumbent sustains, in an open loop times one plus the least
            gain worth a change.
        rate_to_beat: For closed loops, the incumbent's inferences per second times one plus that
            gain: a candidate that fails at ``to_beat`` has lost only if it also answers less.
        informative: Measures a candidate that lost once more, at a load it should pass; None where
            its result says little about others.
        second: A second chance for a candidate that fails within the noise.
    """

    to_beat: float
    rate_to_beat: float | None = None
    informative: Callable[[float], Point] | None = None
    second: SecondChance | None = None

    def lost(self, point: Point) -> bool:
        """Whether a candidate with this result at the load to beat has lost the race.

        In a closed loop, a candidate that misses an SLO but answers more than ``rate_to_beat`` may
        win with fewer clients. One that answers less cannot: fewer clients get no more answers.
        """
        if point.outcome is not SloOutcome.MISSED:
            return False
        rate = point.measurement.throughput_infer_per_s
        return self.rate_to_beat is None or rate < self.rate_to_beat


@dataclass(frozen=True)
class Evaluation:
    """The measurements of a candidate, with the score.

    Attributes:
        limit: Why measuring ended, where not the config but the load generator or the time was the
            limit; else None.
    """

    state: TrialState
    points: tuple[Point, ...]
    score: Score
    limit: Reason | None = None


@dataclass(frozen=True)
class SecondChance:
    """A second measurement of a candidate that nearly sustained the load to beat.

    Attributes:
        near_miss: SLO utilisation up to which a lost race is a near miss: noise alone makes two
            measurements of one config at one load differ by as much.
        measure: Measures at the level that the incumbent sustains, under other arrivals.
    """

    near_miss: float
    measure: Callable[[], Point]


@dataclass(frozen=True)
class Raced:
    """The measurements of a race, the load to beat first, and whether the candidate lost."""

    points: tuple[Point, ...]
    lost: bool

    def evaluation(self, objective: Objective) -> Evaluation:
        """The evaluation of a candidate that lost: its score is an upper bound."""
        score = score_points(objective, self.points[:1])
        return Evaluation(TrialState.PRUNED, self.points, score)


def race(measure: Callable[[float], Point], plan: LoadPlan, rules: Race) -> Raced:
    """Measures a deployed candidate at the load to beat: one that fails there cannot win.

    Raises:
        TrialError: The load to beat gave no result.
    """
    first = measure(plan.levels.nearest(rules.to_beat))
    if not rules.lost(first):
        return Raced((first,), lost=False)
    with suppress(LoadFailedError, ClientLimitError, OutOfTimeError):  # the first result is enough
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
    at_most: float = MOST_PROBES,
    cost: Callable[[Point], float] = lambda _: 1.0,
    known: Sequence[Point] = (),
    too_much: NoResult | None = None,
) -> Evaluation:
    """Measures a deployed candidate to its capacity.

    Args:
        start: The first level where nothing is ``known``; lowered until there is a result.
        at_most: Most measurements, those in ``known`` included.
        cost: As how many of these a measurement counts.
        known: The measurements of a race that the candidate did not lose.
        too_much: A level known to saturate the candidate, by its screening.

    Raises:
        TrialError: No load gave a result, or none passed before the limit of time or of the load
            generator.
    """
    points, above = list(known), MeasureOrLower(measure, plan.levels)
    first = plan.levels.nearest(start)
    while not points:
        try:
            points.append(measure(first))
        except (ClientLimitError, LoadFailedError) as error:
            first = above.lower(error, first)
    seen: list[Probe] = [*filter(None, [too_much]), *points, *above.no_result_at]
    search = CapacitySearch(
        start, above.levels, at_most=at_most - sum(map(cost, points)), known=seen
    )
    limit: Reason | None = None
    try:
        while (level := search.ask()) is not None:
            try:
                points.append(measure(level))
                search.tell(points[-1], cost(points[-1]))
            except LoadFailedError:
                if not any(p.passed for p in points):
                    raise
                search.tell(NoResult(level))  # too much, since a lower one has passed
            except ClientLimitError as error:
                above.lower(error, level)
                search.levels = above.levels
    except (ClientLimitError, OutOfTimeError) as error:
        if not any(p.passed for p in points):
            raise  # no measurement says anything about the config
        limit = error.reason
    score, most = score_points(objective, points), above.levels.limit(search.probes)
    if most < math.inf:  # equal to other configs that sustain this level
        limit = Reason(ReasonKind.SENDABLE_LIMIT, facts={"sendable_level": float(most)})
        score = replace(score, value=most * points[0].measurement.batch_size)
    return Evaluation(TrialState.MEASURED, tuple(points), score, limit)


def evaluate_listed(
    measure: Callable[[float], Point], objective: Objective, listed: Sequence[float]
) -> Evaluation:
    """Measures a deployed candidate at the levels that the spec lists, ascending.

    Raises:
        TrialError: A level gave no result; above one that passed, time and load generator only end
            the measuring.
    """
    goodput = objective.goal is Goal.MAXIMIZE_GOODPUT
    points: list[Point] = []
    limit = None
    for level in listed:
        try:
            points.append(measure(level))
        except (ClientLimitError, OutOfTimeError) as error:
            if goodput and any(p.passed for p in points):
                limit = error.reason
                break
            raise
        if goodput and points[-1].outcome is SloOutcome.MISSED:
            break  # a higher load is missed, too; after too few answers, it gives more
    return Evaluation(TrialState.MEASURED, tuple(points), score_points(objective, points), limit)


def nearly(probe: Probe, most: float) -> bool:
    """Whether the SLO utilisation is at most ``most``, and the server was not saturated."""
    return (
        not saturated(probe) and probe.slo_utilisation is not None and probe.slo_utilisation <= most
    )
