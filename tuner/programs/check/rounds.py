"""The rounds of a check: the config in the repository, each time on a fresh server.

A round is the same as in a confirmation (`tuner.confirm.rounds`), so that its result was found in
the same way as the accepted one: from the same seeds, hence the same arrivals, and where loads are
searched, as a capacity. Each round is compared with the accepted result's round of the same
arrivals, which cancels the ups and downs that both saw, and the interval knows how nights differ
(`tuner.confirm.regression`). The rounds are looked at when `check.rounds` of them are over and,
while that is inconclusive, at twice and at four times as many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean

from tuner.bench.evaluate import FromAbove, evaluate, evaluate_listed
from tuner.bench.protocol import Bench
from tuner.confirm.regression import Change, Held, change_of, held, over_nights
from tuner.confirm.rounds import (
    Contender,
    Entrant,
    Round,
    Rounds,
    measure_fixed_round,
    search_round,
)
from tuner.errors import ClientLimitError
from tuner.run.checks import Baseline
from tuner.run.confirmation import Role, Soak
from tuner.score.capacity import Bracket
from tuner.score.judge import tightest_latency, value_of
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point
from tuner.score.ratio import Ratio, mean_with_interval, paired_ratio, two_sample_ratio
from tuner.spec.slo import Goal, Objective, Slo
from tuner.steps.estimate import refuse_too_slow
from tuner.steps.first_load import First, first_level
from tuner.steps.session import Session

#: The rounds are looked at after these multiples of `check.rounds`. The last is for noisy machines.
LOOKS = (1, 2, 4)
#: Number of servers on which no load tried met the SLOs before that is believed.
HOPELESS = 2
#: Loads tried to find the capacity roughly; the rounds correct what is missing.
PROBES = 4


@dataclass(frozen=True)
class Start:
    """The load of the first round; ``missed``: no load met the SLOs in looking for it."""

    level: float
    missed: bool = False


@dataclass(frozen=True)
class Checked:
    """What the rounds gave.

    Attributes:
        held: One point a round, at the load that must be sustained.
        any_load: Any load will do: ``held`` is each round's highest that met the SLOs.
        level: The load at which every SLO was met in every round; None when there was none.
        expected: Where the capacity seems to be, as a load.
        compared: What ``values`` are, as in `result.json`.
        values: One a round; empty when the metric was not measured in each.
        ratio: Against the baseline, above 1 is better; None without one.
        nights: How many nights the baseline is the mean of; 0 without a ratio.
        arrivals: Seed of the first round's.
        client_limit: What the load generator could not send: ``values`` are then lower bounds.
        disturbances: What disturbed the machine under that load, or one that missed an SLO.
        credited: The soak of the load that the config is credited with; None where it had none.
    """

    held: tuple[Point, ...]
    any_load: bool
    level: float | None
    expected: float
    compared: str
    values: tuple[float, ...]
    ratio: Ratio | None
    nights: int
    arrivals: int
    client_limit: str | None = None
    disturbances: tuple[str, ...] = ()
    credited: Soak | None = None

    @property
    def slos(self) -> Held:
        return held(self.held)


def check(session: Session, baseline: Baseline | None, *, accept: bool = False) -> Checked:
    """Measures round after round until the check is decided.

    A result that is to be accepted takes at least twice `check.rounds`, and all rounds if it
    scatters so much that fewer could not rule out a loss of `check.fail`.

    Raises:
        TrialError: The config cannot be served, or gives no measurement.
        InterruptedRunError: The user stopped it.
    """
    return _Rounds(session, baseline, accept=accept).check()


class _Rounds:
    """The rounds of one check."""

    def __init__(self, session: Session, baseline: Baseline | None, *, accept: bool) -> None:
        theirs = None if baseline is None else baseline.arrivals
        self._accept = accept
        shares = theirs is not None and session.plan.arrivals.open_loop
        #: How many accepted rounds these share arrivals with. A closed loop has none to share.
        self._shared = len(baseline.values) if baseline is not None and shares else 0
        self._session = session
        self._baseline = baseline
        self._listed = session.plan.listed
        self._at = session.spec.check.at
        #: Of the first round's arrivals: the accepted result's, so that rounds are pairs.
        self._seed = (session.arrivals or 0) if theirs is None else theirs
        self._rounds = Rounds(session.bench, self._seed, session.record)
        self._start = self._find_start()
        self._contender = Contender(Entrant(session.current, self._start.level))
        self._held: list[Point] = []
        self._limits: list[ClientLimitError] = []  # what the load generator could not send

    def check(self) -> Checked:
        for done in (times * self._session.spec.check.rounds for times in LOOKS):
            for number in range(len(self._held), done):
                if self._hopeless():
                    return self._found()
                self._session.events.phase(f"round {number + 1}")
                self._held.append(self._round(number))
            if held(self._held) is not Held.MET:  # more rounds would not change that
                break
            if not (self._too_few(done) if self._accept else self._undecided()):
                break
        return self._found()

    def _find_start(self) -> Start:
        """The baseline's level, else the likely capacity."""
        session = self._session
        if self._listed is not None:
            return Start(self._listed_level(self._listed))
        if self._baseline is not None:
            return Start(self._baseline.expected)
        session.events.phase("looking for the capacity")
        session.bench.deploy(session.current)
        bound, plan = tightest_latency(session.spec.slos), session.plan
        refuse = partial(refuse_too_slow, session.spec, plan)
        return rough_capacity(session.bench, plan, self._seed, bound, refuse)

    def _listed_level(self, listed: Sequence[float]) -> float:
        """The load to hold it to: `check.at`, the baseline's, or the highest that holds now."""
        session, baseline = self._session, self._baseline
        if self._at is not None:
            return self._at
        if baseline is not None and baseline.level in listed:
            return baseline.level
        if len(listed) == 1:
            return listed[0]
        session.events.phase("looking for the highest load that holds")
        session.bench.deploy(session.current)
        return highest_that_holds(session.bench, listed, self._seed)

    def _hopeless(self) -> bool:
        """Any load would do, but none did on several servers: more rounds would show the same."""
        if not self._any_load:
            return False
        rounds, enough = self._contender.rounds, HOPELESS - self._start.missed
        return len(rounds) >= enough and not any(r.passed for r in rounds)

    @property
    def _any_load(self) -> bool:
        return self._listed is None and self._at is None

    def _round(self, number: int) -> Point:
        """One more round; the point at the load that must be sustained."""
        session, contender = self._session, self._contender
        known_to_miss = self._start.missed and number == 0 and self._any_load
        held_at: list[Point] = []

        def search(measure: Callable[[float], Point]) -> Round:
            def within_limits(level: float) -> Point:
                try:
                    return measure(level)
                except ClientLimitError as error:
                    self._limits.append(error)
                    raise

            if self._listed is not None or known_to_miss:
                return measure_fixed_round(within_limits, self._start.level)
            if self._at is not None:
                held_at.append(within_limits(self._at))
            levels = session.plan.levels
            above = FromAbove(lambda level: search_round(within_limits, level, levels), levels)
            return above.result(contender.expected_level())

        # Rounds beyond the accepted ones have their arrivals again.
        arrivals = number % self._shared if self._shared and not self._accept else number
        contender.rounds.append(
            self._rounds.measure(number, Role.CURRENT, session.current, search, arrivals=arrivals)
        )
        if self._limits:
            limit = self._limits[-1]
            session.events.note(f"the load generator is the limit, not the model: {limit}")
        return held_at[0] if held_at else contender.rounds[-1].sustained

    def _undecided(self) -> bool:
        ratio, limits = self._found().ratio, self._session.spec.check
        if ratio is None:
            return False
        return change_of(ratio, limits.warn, limits.fail) is Change.INCONCLUSIVE

    def _too_few(self, done: int) -> bool:
        """To accept: a check of an equal config could not be sure to rule out a loss."""
        _, values = self._compared()
        if done == self._session.spec.check.rounds:
            return True
        if not values or min(values) <= 0.0:
            return False
        mean = mean_with_interval(values)
        width = math.sqrt(2.0) * math.log(mean.high / mean.estimate)  # of a ratio of two such means
        return width > self._session.spec.check.fail

    def _found(self) -> Checked:
        contender = self._contender
        compared, values = self._compared()
        ratio = self._ratio(compared, values)
        all_passed = all(r.passed for r in contender.rounds)
        return Checked(
            held=tuple(self._held),
            any_load=self._any_load,
            level=contender.credited_level if all_passed else None,
            expected=contender.expected_level(),
            compared=compared,
            values=values,
            ratio=ratio,
            nights=0 if ratio is None or self._baseline is None else len(self._baseline.ratios),
            arrivals=self._seed,
            client_limit=self._limits[-1].message if self._limits else None,
            disturbances=self._disturbances(),
        )

    def _disturbances(self) -> tuple[str, ...]:
        missed = [p for r in self._contender.rounds for p in r.points if not p.passed]
        said = [d for p in (*self._held, *missed) for d in p.measurement.disturbances]
        return tuple(dict.fromkeys(said))

    def _compared(self) -> tuple[str, tuple[float, ...]]:
        """What a confirmation compares, of each round: the minimised metric, or capacity."""
        metric = self._session.spec.objective.metric
        if metric is None:
            name = "throughput" if self._listed else "capacity"
            return name, tuple(self._contender.capacities())
        readings = [value_of(metric, r.sustained.measurement) for r in self._contender.rounds]
        known = tuple(v for v in readings if v is not None)
        return metric.name, known if len(known) == len(readings) else ()

    def _ratio(self, compared: str, values: Sequence[float]) -> Ratio | None:
        baseline = self._baseline
        if baseline is None or baseline.compared != compared:
            return None
        if self._listed is not None and baseline.level != self._contender.entrant.level:
            return None  # what is served at another load says nothing
        if not values or min(*values, *baseline.values) <= 0.0:
            return None
        return self._against(baseline, values)

    def _against(self, baseline: Baseline, values: Sequence[float]) -> Ratio:
        """By pairs of rounds with the same arrivals; of several with the same, by their mean."""
        now, then, count = tuple(values), baseline.values, self._shared
        if count:
            now = now[:count] if self._accept else now
            now = tuple(geometric_mean(now[i::count]) for i in range(min(count, len(now))))
            then = then[: len(now)]
        freedom = len(now) - 1 if count else len(now) + len(then) - 2
        if self._session.spec.objective.goal is Goal.MINIMIZE:
            now, then = then, now  # less is better
        tonight = (paired_ratio if count else two_sample_ratio)(now, then)
        return over_nights(tonight, max(freedom, 1), baseline.ratios)


def rough_capacity(
    bench: Bench,
    plan: LoadPlan,
    seed: int,
    bound: Slo | None = None,
    looked: Callable[[First], None] = lambda _: None,
) -> Start:
    """About where the capacity of the deployed config is; the lowest load tried if all failed.

    ``bound``: the tightest on a latency; a closed loop begins by it. ``looked`` receives what the
    first look saw, and raises where there is no use in going on.
    """
    first = first_level(bench, plan, seed, bound=None if plan.arrivals.open_loop else bound)
    looked(first)
    goodput, measure = Objective.goodput(), partial(bench.measure, seed=seed)
    points = evaluate(measure, goodput, plan, first.level, at_most=PROBES).points
    capacity = Bracket.of(points).capacity()
    if capacity is None:
        return Start(min(p.level for p in points), missed=True)
    return Start(capacity)


def highest_that_holds(bench: Bench, listed: Sequence[float], seed: int) -> float:
    """The highest listed load that meets the SLOs, or the lowest load if none does."""
    points = evaluate_listed(partial(bench.measure, seed=seed), Objective.goodput(), listed).points
    return max((p.level for p in points if p.passed), default=listed[0])
