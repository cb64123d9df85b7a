"""From a candidate to its score: which loads to put on it, and when it has lost."""

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

#: At most this many measurements of a candidate, the race included.
MOST_PROBES = 5
#: An informative candidate that lost the race is measured so far below what it answered there that
#: its latency reflects its work.
WELL_BELOW = StepRule(of_served=0.75)
#: It is lowered to this share of what the load generator did send, where that is known.
UNSENT = StepRule(of_served=0.9)

Result = TypeVar("Result")


@dataclass
class ClientCeiling:
    """What the load generator can send, as far as was seen: no load above ``most`` is asked for."""

    most: float = math.inf
    sent: float = 0.0

    @classmethod
    def seen(cls, measured: Iterable[Measurement]) -> ClientCeiling:
        """By what an earlier part of the run has measured."""
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
        """Keeps the bound if it has sent as much before: that was the config's fault, or chance."""
        lower = below_unsent(error, level, LevelRange(0.0, math.inf))
        if level > self.sent and lower is not None:
            self.most = max(min(self.most, lower), self.sent)


@dataclass
class MeasureOrLower(Generic[Result]):
    """Measures at a level, or at the first below it that gives a result.

    Attributes:
        levels: Allowed ones; lowered to what the load generator can send once that is known.
        no_result_at: Loads that gave no result though they were sent.
    """

    measure: Callable[[float], Result]
    levels: LevelRange
    no_result_at: list[NoResult] = field(default_factory=list)
    steps: int = 0

    def result(self, level: float) -> Result:
        """The first result.

        Raises:
            TrialError: There is none, or it was not for the load: the model itself fails.
        """
        level = self.levels.nearest(level)
        while True:
            try:
                return self.measure(level)
            except (ClientLimitError, LoadFailedError) as error:
                level = self.lower(error, level)

    def lower(self, error: TrialError, level: float) -> float:
        """The next load to try after ``level`` gave no result; raises ``error`` without one."""
        self.steps += 1
        lower = below_unsent(error, level, self.levels)
        if lower is None or self.steps > TOO_HIGH.at_most or isinstance(error, ModelFailsError):
            raise error
        if isinstance(error, ClientLimitError):
            limited = not self.levels.integer  # more clients need not get more
            self.levels = replace(self.levels, highest=lower, limited=limited)
        else:
            self.no_result_at.append(NoResult(level))
        return lower


def below_unsent(error: TrialError, level: float, levels: LevelRange) -> float | None:
    """The load below one that gave no result; None where there is none."""
    sent_per_s = error.sent_per_s if isinstance(error, ClientLimitError) else None
    return next_load([NoResult(level, sent_per_s)], levels, UNSENT)


@dataclass(frozen=True)
class Race:
    """The load a candidate must sustain to be measured in full.

    Attributes:
        to_beat: Level the incumbent sustains times one plus the smallest gain worth having.
        rate_to_beat: The same in inferences per second, for closed loops: a candidate that fails at
            this level has lost only if it also answers less than this rate.
        informative: Measures a candidate that fails there once more, at a load it should pass.
            None: nothing is to be learnt from it.
        second: A second chance for one that fails there by no more than noise.
    """

    to_beat: float
    rate_to_beat: float | None = None
    informative: Callable[[float], Point] | None = None
    second: SecondChance | None = None

    def lost(self, point: Point) -> bool:
        """A closed loop that fails but answers more may be the better one with fewer clients.

        With fewer clients it answers no more than it did there.
        """
        if point.outcome is not SloOutcome.MISSED:
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
    limit: Reason | None = None


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
    """Measures a deployed candidate at the load to beat: one that fails there cannot win."""
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
    too_much: NoResult | None = None,
) -> Evaluation:
    """Measures a deployed candidate to its capacity.

    Args:
        start: First level when nothing is ``known``; lowered until a result comes.
        at_most: Measurements, those known included.
        known: What a race that it did not lose has measured.
        too_much: A load that it does not answer, where that is known without a measurement.
    """
    points, above = list(known), MeasureOrLower(measure, plan.levels)
    first = plan.levels.nearest(start)
    while not points:
        try:
            points.append(measure(first))
        except (ClientLimitError, LoadFailedError) as error:
            first = above.lower(error, first)
    seen: list[Probe] = [*filter(None, [too_much]), *points, *above.no_result_at]
    search = CapacitySearch(start, above.levels, at_most=at_most - len(points), known=seen)
    limit: Reason | None = None
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
        limit = error.reason
    score, most = score_points(objective, points), above.levels.limit(search.probes)
    if most < math.inf:  # whatever it answered, it is equal to others that sustain that
        limit = Reason(ReasonKind.SENDABLE_LIMIT, facts={"sendable_level": float(most)})
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
            if goodput and any(p.passed for p in points):
                limit = error.reason
                break
            raise
        if goodput and points[-1].outcome is SloOutcome.MISSED:
            break  # a higher load is missed too; with too few answers, it has more of them
    return Evaluation(TrialState.MEASURED, tuple(points), score_points(objective, points), limit)


def nearly(probe: Probe, most: float) -> bool:
    """It missed an SLO, but its utilisation is at most this, and the server kept up."""
    return (
        not saturated(probe) and probe.slo_utilisation is not None and probe.slo_utilisation <= most
    )
