"""The measurements of one trial: a look, the race, and further loads up to the capacity."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tuner.errors import (
    ClientLimitError,
    LoadFailedError,
    ModelFailsError,
    OutOfTimeError,
)
from tuner.load import seeds
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import informing_window, window_of
from tuner.meter.evaluate import (
    MOST_PROBES,
    Evaluation,
    Race,
    SecondChance,
    evaluate,
    evaluate_listed,
    race,
)
from tuner.meter.session import Session
from tuner.reason import Reason, ReasonKind
from tuner.score.judge import Verdict, tightest_latency
from tuner.score.point import Point
from tuner.score.saturation import Saturated
from tuner.score.trial import Trial
from tuner.search.estimate import FEW_PROBES, LONG_S, LONGER, Seen, estimate_run, length_s, minutes
from tuner.search.first_load import First, first_level, first_of
from tuner.search.incumbent import incumbent
from tuner.search.screening import Screening
from tuner.search.strategies.batch_rates import BatchRates
from tuner.search.strategy import Proposal
from tuner.search.window_notes import long_windows, refuse_too_slow
from tuner.sentences import failed
from tuner.spec.units import digits

#: A predicted capacity this many times the load to beat is measured first, where that takes long.
LEAP = 1.3
#: A shorter measurement counts as this part of one, or more.
LEAST_PART = 0.25


class Measuring:
    """The measurements of one trial, whose candidate is deployed."""

    def __init__(
        self,
        session: Session,
        history: Sequence[Trial],
        proposal: Proposal,
        clock: Clock,
        screening: Screening,
    ) -> None:
        self._session = session
        self._candidate, self._screening = proposal.candidate, screening
        self._start: float | None = None
        self._known: Sequence[Point] = ()
        self._clock = clock
        # One seed for all, so that configs and loads are compared under the same arrivals. Only a
        # near miss is measured under others: these arrivals may have been unfavorable by chance.
        self._seed = seeds.of_search(session.spec.search.seed)
        self._measure = partial(self._measured, self._seed)
        #: The current config still needs its first measurement, which comparisons need.
        self._owed = proposal.candidate == session.current
        self._rules = self._race_rules(
            incumbent(history, session.spec.objective.goal, session.current), proposal
        )

    def look(self) -> Evaluation | None:
        """Takes a look; the evaluation if the look shows that the candidate has lost, else None."""
        if self._rules is not None and not self._owed:
            self._refuse_when_late()
            self._screening.look(self._candidate, self._rules.to_beat)
        return self.lost()

    def lost(self) -> Evaluation | None:
        """The evaluation if earlier looks show that the candidate has lost; else None."""
        if self._rules is None or self._owed:
            return None
        return self._screening.lost(self._candidate, self._rules.to_beat)

    def race(self) -> Evaluation | None:
        """Measures at the listed loads, or at the load to beat; None if that race is not lost."""
        plan, objective = self._session.plan, self._session.spec.objective
        if plan.listed:
            return evaluate_listed(self._measure, objective, plan.listed)
        rules = self._rules
        if rules is None:
            return None
        self._start = rules.to_beat
        self._leap(rules.to_beat)
        if any(point.passed for point in self._known):
            return None
        try:
            raced = race(self._measure, plan, rules)
        except ModelFailsError:
            raise
        except ClientLimitError:
            return None  # now the plan has the lower limit
        except LoadFailedError as error:
            # the load to beat may be so far above the capacity that there is no result
            self._session.events.note(f"a lower load is tried: {error.message}")
            self._start = None
            return None
        leaps, self._known = self._known, (*raced.points, *self._known)
        evaluation = raced.evaluation(objective)
        return replace(evaluation, points=(*evaluation.points, *leaps)) if raced.lost else None

    def _race_rules(self, best: Trial | None, proposal: Proposal) -> Race | None:
        """The rules of the race; None where there is no load to beat."""
        spec = self._session.spec
        to_beat = None if best is None else best.sustained_level
        if best is None or to_beat is None:
            return None
        others = seeds.of_near_miss(spec.search.seed)
        second = SecondChance(self._session.near_miss, partial(self._measured, others, to_beat))
        gain, rate_to_beat = spec.confirm.least_ratio, None
        if self._session.plan.arrivals.open_loop:
            to_beat *= gain
        elif best.score is not None:
            rate_to_beat = best.score.value * gain
        if proposal.outdone:  # a miss would confirm the expectation
            return Race(to_beat, rate_to_beat)
        informs = proposal.informative and self._seen is None  # a look is as informative
        return Race(to_beat, rate_to_beat, self._inform if informs else None, second)

    def _leap(self, to_beat: float) -> None:
        """Measures at the predicted capacity, if that is far above the load to beat.

        Only where a measurement at the load to beat takes long: one at a higher load is shorter,
        and says more of a candidate that sustains it.
        """
        if not self._session.plan.arrivals.open_loop or self._length_s(to_beat) <= LONG_S:
            return
        likely = self._likely_per_s()
        if self._seen is None or math.isinf(likely):
            return
        level = self._session.plan.levels.nearest(first_of(self._seen, likely).level)
        if level < LEAP * to_beat:
            return
        try:
            self._known = (self._measure(level),)
        except ModelFailsError:
            raise
        except (LoadFailedError, ClientLimitError) as error:
            self._session.events.note(f"the load to beat is tried: {error.message}")

    def climb(self) -> Evaluation:
        """Measures up to the capacity, from the load to beat or from a first load."""
        first = self._first() if self._start is None else First(self._start)
        spec, plan = self._session.spec, self._session.plan
        if first.lowest:
            levels = replace(plan.levels, lowest=plan.levels.nearest(first.level))
            plan = replace(plan, levels=levels)
        at_most, cost = float(MOST_PROBES), _one
        if self._length_s(first.level) > LONG_S:
            window = window_of(spec, LoadPoint(plan.arrivals, first.level), brief=True)
            at_most, cost = FEW_PROBES, partial(_part_of, window.duration_s)
        return evaluate(
            *(self._measure, spec.objective, plan, first.level),
            at_most=at_most,
            cost=cost,
            known=self._known,
            too_much=None if self._seen is None else self._seen.too_much,
        )

    def _length_s(self, level: float) -> float:
        return length_s(self._session.spec, self._session.plan, level)

    def _first(self) -> First:
        self._refuse_when_late()
        session, note = self._session, self._session.events.note
        if self._seen is not None:
            first = first_of(self._seen, self._likely_per_s())
        else:
            bound = tightest_latency(session.spec.slos)
            likely = self._likely_per_s()
            first = first_level(session.bench, session.plan, self._seed, note, bound, likely)
        refuse_too_slow(session.spec, session.plan, first)
        if session.plan.arrivals.open_loop:
            self._announce_length(session.plan.levels.nearest(first.level))
        return first

    def _likely_per_s(self) -> float:
        """Capacity in requests per second by the timed first calls; infinite without these."""
        calls = self._session.bench.batch_calls
        if not calls:
            return math.inf
        rates = BatchRates.of(self._session.job.space, self._session.spec)
        return rates.capacity_per_s(self._candidate, calls, self._seen)

    @property
    def _seen(self) -> Saturated | None:
        return self._screening.seen.get(self._candidate.key)

    def _announce_length(self, rate_per_s: float) -> None:
        """Notes how long windows and the run take, if longer than expected; once a search."""
        if not self._owed:
            return
        session = self._session
        text = long_windows(session.spec, rate_per_s)
        expected, run = (
            estimate_run(session.job, Seen(rate, (session.load_s,))) for rate in (None, rate_per_s)
        )
        if text or run.total_s > LONGER * expected.total_s:
            session.events.note("; ".join(filter(None, [text, run.sentence])))

    def _measured(self, seed: int, level: float) -> Point:
        self._refuse_when_late(level)
        point = self._session.bench.measure(level, seed)
        self._owed = False
        return point

    def _inform(self, level: float) -> Point:
        """Measures the latencies of a candidate that lost, without a verdict on any SLO."""
        load = LoadPoint(self._session.plan.arrivals, level)
        if not load.arrivals.open_loop:
            return self._measure(level)
        self._refuse_when_late(level)
        window = informing_window(self._session.spec, load)
        point = self._session.bench.once(level, self._seed, window)
        slo = (replace(s, verdict=Verdict.NOT_ENOUGH_DATA, why_unsteady=None) for s in point.slo)
        return replace(point, slo=tuple(slo))

    def _refuse_when_late(self, level: float | None = None) -> None:
        """Refuses a measurement that does not fit into the rest of the budget's time.

        ``level``: the level of the measurement, where it is known.

        Raises:
            OutOfTimeError: The measurement would end after the budget's time.
            LoadFailedError: The first measurement of the current config alone takes longer.
        """
        needs_s = 0.0 if level is None else length_s(self._session.spec, self._session.plan, level)
        if not self._owed and self._clock.left_s() <= needs_s:
            raise failed(OutOfTimeError, Reason(ReasonKind.OUT_OF_TIME))
        budget_s = self._clock.time_s
        if self._owed and budget_s is not None and needs_s > budget_s:
            raise LoadFailedError(
                f"one measurement at {digits(level or 0.0, 3)}/s takes {minutes(needs_s)}, and "
                f"budget.time is {minutes(budget_s)}: raise it, or ask for a lower percentile"
            )


def _one(_: Point) -> float:
    return 1.0


def _part_of(duration_s: float, point: Point) -> float:
    """The part of a measurement that this point counts as: one at a higher load takes less."""
    return min(max(point.measurement.duration_s / duration_s, LEAST_PART), 1.0)


class Clock:
    """The time of the budget; ``spent_s``: seconds that count as spent when the search begins."""

    def __init__(self, spent_s: float, time_s: float | None) -> None:
        self._from_s = time.monotonic() - spent_s
        self.time_s = time_s

    def elapsed_s(self) -> float:
        return time.monotonic() - self._from_s

    def left_s(self) -> float:
        return math.inf if self.time_s is None else self.time_s - self.elapsed_s()
