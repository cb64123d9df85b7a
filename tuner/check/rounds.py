"""The rounds of a check: the config in the repository, each time on a fresh server.

A round is measured as in a proof (`tuner.proof.rounds`). Its arrivals are those of the same round
of the accepted result, so that the effect of arrivals cancels in the ratio of the two.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tuner.check.nights import change_of, over_nights, slo_status
from tuner.errors import LoadFailedError, TrialError
from tuner.measurement.measurement import LoadPoint
from tuner.meter.evaluate import evaluate, evaluate_listed
from tuner.meter.protocol import Bench
from tuner.meter.session import Session
from tuner.progress.events import Outlook
from tuner.proof.contender import Contender, measure_round
from tuner.proof.decide import look_after
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.soak import soak
from tuner.reason import Reason, ReasonKind
from tuner.record.checks import Baseline, CheckFigures, SloRounds
from tuner.record.confirmation import Role, Soak
from tuner.record.responses import responses_of
from tuner.record.shapes import shapes_of
from tuner.record.status import CheckStatus
from tuner.score.capacity import Bracket
from tuner.score.judge import SloOutcome, severity, tightest_latency
from tuner.score.point import Point
from tuner.score.ratio import Ratio, paired_ratio, two_sample_ratio
from tuner.search.estimate import soak_time_s
from tuner.search.first_load import first_level
from tuner.search.window_notes import refuse_too_slow
from tuner.sentences import sentence
from tuner.spec.slo import Goal, Objective

#: Most loads of the rough capacity search before the rounds, which refine the capacity.
PROBES = 4


class CheckRounds:
    """The rounds of one check.

    Attributes:
        points: One point of each round, at the load that must be sustained.
        any_load: No load is specified: ``points`` has the highest load of each round that met the
            SLOs.
        arrivals: Seed of the arrivals of the first round; the accepted result's, so that rounds
            with the same number are pairs.
        figures: The figures of all rounds, once they have ended.
    """

    def __init__(self, session: Session, baseline: Baseline | None, *, accept: bool) -> None:
        spec, plan = session.spec, session.plan
        self._session, self._baseline, self._accept = session, baseline, accept
        self.arrivals = session.first_seed if baseline is None else baseline.arrivals
        self._rules = ProofRules(spec.objective, spec.slos, plan, spec.confirm, self.arrivals)
        note = session.events.note
        self._measured = MeasuredOnce(session.bench, session.record, note=note)
        self._current = Contender(Entrant(session.current, self._start()))
        self._at = spec.check.at if plan.listed is None else None
        self._paired = plan.arrivals.open_loop  # a closed loop has no arrivals to share
        self.any_load = plan.listed is None and self._at is None
        self.points: list[Point] = []
        self.figures = CheckFigures()

    def measure(self, credited: float | None) -> None:
        """Measures rounds until they decide the check; for a new baseline, all of them.

        Args:
            credited: The load that the config is credited with, in requests per second or clients;
                it is soaked if the rounds meet the SLOs. None: no soak.

        Raises:
            TrialError: The config cannot be served, or no load gives a measurement.
            InterruptedRunError: The user stopped the check.
        """
        most, baseline, current = self._session.spec.check.rounds, self._baseline, self._current
        if baseline is not None and self._paired and not self._accept:
            most = min(most, len(baseline.values))
        events, began = self._session.events, time.monotonic()
        for number in range(most):
            events.phase(f"round {number + 1} of at most {most}")
            self.points.append(self._round(number))
            events.round_over(f"round {number + 1}", self.points[-1])
            round_s = (time.monotonic() - began) / (number + 1)
            events.outlook(Outlook((most - number - 1) * round_s + self._soak_s(credited)))
            if look_after(number + 1, most, 1) and self._decided():
                break
        (compared, values), ratio = self._compared(), self._ratio()
        met = not slo_status(self.points)
        slowest = max(self.points, key=lambda p: p.measurement.p99_latency_us)
        self.figures = CheckFigures(
            rounds=len(self.points),
            load=f"{'about ' * self.any_load}{self.points[0].measurement.load}",
            level=min(p.level for p in current.points)
            if all(p.passed for p in current.points)
            else None,
            compared=compared,
            values=list(values),
            slo=[
                SloRounds(worst=min(results, key=severity), values=[r.value for r in results])
                for results in zip(*(p.slo for p in self.points), strict=True)
            ],
            shapes=list(shapes_of(slowest)),
            responses=list(responses_of(slowest.measurement)),
            ratio=ratio,
            nights=0 if ratio is None or baseline is None else len(baseline.ratios),
            credited=None if credited is None or not met else self._soak(credited),
        )

    @property
    def expected(self) -> float:
        """The load at which the next round would begin: the best estimate of the capacity."""
        return self._current.expected_level()

    @property
    def client_limit(self) -> float | None:
        """The most that the load generator could send, in requests per second.

        None unless the load generator, not the server, limited the capacity.
        """
        return min(r.limit for r in self._current.rounds) if self._current.limited else None

    @property
    def loads_tried(self) -> int:
        """Number of loads that were measured, over all rounds."""
        return sum(len(r.points) for r in self._current.rounds)

    @property
    def _missed(self) -> list[Point]:
        points = (p for r in self._current.rounds for p in r.points)
        return [p for p in points if p.outcome is SloOutcome.MISSED]

    @property
    def loads_missed(self) -> int:
        """Number of loads that missed an SLO, such as those above the capacity."""
        return len(self._missed)

    @property
    def disturbances(self) -> tuple[Reason, ...]:
        """Disturbances at ``points`` and at loads that missed an SLO, each once."""
        texts = (d for p in (*self.points, *self._missed) for d in p.measurement.disturbances)
        return tuple({sentence(d): d for d in reversed([*texts])}.values())[::-1]

    def _start(self) -> float:
        """The load of the first round: the spec's, the accepted result's, or a short search's."""
        session, baseline, at = self._session, self._baseline, self._session.spec.check.at
        listed = session.plan.listed
        if listed is None:
            return self._rough() if baseline is None or self._accept else baseline.expected
        if at is not None:
            return at
        if baseline is not None and baseline.level in listed:
            return baseline.level
        if len(listed) == 1:
            return listed[0]
        session.events.phase("looking for the highest load that is sustained")
        session.bench.deploy(session.current)
        return highest_that_holds(session.bench, listed, self.arrivals)

    def _rough(self) -> float:
        self._session.events.phase("looking for the capacity")
        self._session.bench.deploy(self._session.current)
        return rough_capacity(self._session, self.arrivals)

    def _round(self, number: int) -> Point:
        """Measures one round; returns the point at the load that must be sustained."""
        place = self._measured, self._current, self._rules, number, Role.CURRENT, self._at
        try:
            return measure_round(*place)
        except LoadFailedError:
            if number > 0 or self._rules.plan.listed is not None:
                raise
        # The accepted result's load overloads the server: begin at a load that it sustains now.
        self._current.entrant = replace(self._current.entrant, level=self._rough())
        return measure_round(*place)

    def _decided(self) -> bool:
        """Whether further rounds could not change the verdict."""
        if slo_status(self.points):
            return True
        ratio, limits = self._ratio(), self._session.spec.check
        if self._accept or ratio is None:
            return not self._accept
        return change_of(ratio, limits.warn, limits.fail) is not CheckStatus.INCONCLUSIVE

    def _compared(self) -> tuple[str, tuple[float, ...]]:
        """The name and the values, one a round, of what is compared; a higher value is better."""
        objective, listed = self._rules.objective, self._rules.plan.listed
        name = objective.metric.name if objective.metric else "throughput" if listed else "capacity"
        return name, self._better_is_more(self._current.readings(self._rules))

    def _better_is_more(self, values: Sequence[float]) -> tuple[float, ...]:
        """Inverts the values of a metric that is minimized, so that higher is better."""
        minimised = self._rules.objective.goal is Goal.MINIMIZE
        return tuple(1.0 / value if minimised else value for value in values)

    def _ratio(self) -> Ratio | None:
        """Ratio to the accepted result, above 1 is better; None without one at the same load."""
        baseline, (compared, values) = self._baseline, self._compared()
        if baseline is None or baseline.compared != compared:
            return None
        if self._rules.plan.listed is not None and baseline.level != self._current.entrant.level:
            return None  # throughput at another load cannot be compared
        if min(*values, *baseline.values) <= 0.0:
            return None
        now, then = map(self._better_is_more, (values, baseline.values))
        freedom = len(now) + len(then) - 2
        if self._paired:
            pairs = min(len(now), len(then))
            now, then, freedom = now[:pairs], then[:pairs], pairs - 1
        tonight = (paired_ratio if self._paired else two_sample_ratio)(now, then)
        nights = float(self._session.spec.check.nights)
        return over_nights(tonight, freedom, baseline.ratios, nights)

    def _soak_s(self, credited: float | None) -> float:
        """Estimated seconds of the soak; 0 if there is none."""
        session = self._session
        if credited is None:
            return 0.0
        return soak_time_s(session.spec, LoadPoint(session.plan.arrivals, credited))

    def _soak(self, level: float) -> Soak | None:
        """Soaks the load on a fresh server; None if the spec turns soaks off.

        A soak that could not be judged has the reason in ``why_unknown``.
        """
        session, current = self._session, self._current
        if float(session.spec.confirm.soak) == 0.0:
            return None
        session.events.phase("soaking the credited load")

        def note(text: str) -> None:
            session.events.note(f"soak: {text}")

        try:
            served, rules = session.current, self._rules
            result = soak(self._measured, served, current, level, rules, note, at_most=1)
        except TrialError as error:
            return Soak(why_unknown=error.reason)
        if result.sustained is None and not result.tried:
            return replace(result, why_unknown=Reason(ReasonKind.NO_SOAK, causes=result.failures))
        return result


def rough_capacity(session: Session, seed: int) -> float:
    """A rough capacity of the deployed config; the lowest load tried if every load missed an SLO.

    Raises:
        LoadFailedError: The loads that it sustains are too low for a verdict.
    """
    bench, plan = session.bench, session.plan
    bound = None if plan.arrivals.open_loop else tightest_latency(session.spec.slos)
    first = first_level(bench, plan, seed, bound=bound)
    refuse_too_slow(session.spec, plan, first)
    measure = partial(bench.measure, seed=seed)
    points = evaluate(measure, Objective.goodput(), plan, first.level, at_most=PROBES).points
    return Bracket.of(points).capacity() or min(p.level for p in points)


def highest_that_holds(bench: Bench, listed: Sequence[float], seed: int) -> float:
    """The highest listed load that meets the SLOs, or the lowest load if none does."""
    points = evaluate_listed(partial(bench.measure, seed=seed), Objective.goodput(), listed).points
    return max((p.level for p in points if p.passed), default=listed[0])
