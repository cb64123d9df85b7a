"""The search: one trial after the other, each on disk before the next begins."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from tuner.bench.again import Attempts
from tuner.bench.evaluate import Evaluation, Race, SecondChance, evaluate, evaluate_listed, race
from tuner.bench.session import Session, informing_window
from tuner.bench.timebook import Phase, TimeBook
from tuner.errors import (
    ClientLimitError,
    DeployRefusedError,
    LoadFailedError,
    ModelFailsError,
    OutOfTimeError,
    TooManyFailedTrialsError,
    TrialError,
)
from tuner.load import seeds
from tuner.measurement.measurement import LoadPoint
from tuner.modelconfig.files import model_names
from tuner.record.status import remedies
from tuner.score.judge import Verdict, tightest_latency
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.search.budget import Budget, Progress, StopReason, out_of_reach
from tuner.search.estimate import (
    Seen,
    estimate_run,
    length_s,
    long_windows,
    minutes,
    most_probes,
    refuse_too_slow,
    spent_s,
)
from tuner.search.first_load import first_level
from tuner.search.fits import cannot_fit
from tuner.search.incumbent import incumbent, trials_since_best
from tuner.search.screening import Screening
from tuner.search.searcher import Searcher
from tuner.search.strategy import Proposal
from tuner.server.log import out_of_memory
from tuner.space.candidate import Candidate
from tuner.spec.units import digits
from tuner.spec.workload import RandomInputs
from tuner.triton.deploy import Deployment


class CurrentConfigFailsError(TooManyFailedTrialsError):
    """The config in the repository gives no measurement, so there is nothing to compare with."""


def search(session: Session, searcher: Searcher) -> tuple[list[Trial], StopReason]:
    """Runs trials until the budget says stop; ``searcher`` keeps each.

    Raises:
        TooManyFailedTrialsError: More trials failed than the budget allows.
        InterruptedRunError: The user stopped it.
    """
    budget = Budget.of(session.spec)
    goal = session.spec.objective.goal
    clock = _Clock(session.load_s + spent_s(searcher.history), budget.time_s)
    screening = Screening(session)
    searcher.rank(screening.ranked(searcher.leads))
    history = searcher.history  # grows with each trial, and with those of workers
    while True:
        _refuse_unmeasurable(session, history)
        session.book.lap()
        if reason := _over(session, history, budget, clock):
            return history, reason
        with session.book.phase(Phase.SEARCHING):
            proposal = searcher.next()
        if reason := _over(session, history, budget, clock):  # workers may have finished something
            return history, reason
        if not isinstance(proposal, Proposal):
            return history, StopReason.EXHAUSTED if proposal is None else StopReason.ENOUGH
        session.checkpoint()
        if proposal.note is not None:
            session.events.note(proposal.note)
        with session.book.phase(Phase.SEARCHING):
            claimed = searcher.start(proposal.candidate)
        if not claimed:
            continue  # a worker was quicker
        session.events.trial_started(len(history), proposal.candidate, session.current)
        trial = _run_trial(session, history, proposal, clock, screening)
        if trial is None:
            _give_up(session, searcher, proposal.candidate, len(history))
            if any(t.candidate == session.current for t in history):
                return history, StopReason.TIME  # nor is there time for another
            continue
        with session.book.phase(Phase.WRITING):
            searcher.tell(trial)
        best = incumbent(history, goal, session.current)
        session.events.trial_finished(trial, best)


def _over(
    session: Session, history: Sequence[Trial], budget: Budget, clock: _Clock
) -> StopReason | None:
    """Why the search is over, by the budget; None while it goes on."""
    goal, current = session.spec.objective.goal, session.current
    tried = [t for t in history if t.attempts]
    reason = budget(
        Progress(
            trials=len(tried),
            failed=sum(t.state is TrialState.FAILED for t in tried),
            since_best=trials_since_best(tried, goal, current),
            elapsed_s=clock.elapsed_s(),
            begun=any(t.candidate == current for t in history),
            out_of_reach=out_of_reach(history, session.spec.slos, session.plan),
        )
    )
    if reason is StopReason.TOO_MANY_FAILED:
        raise _too_many_failed(history)
    return reason


def _refuse_unmeasurable(session: Session, history: Sequence[Trial]) -> None:
    """Without the current config there is nothing to compare with: its failure is reported."""
    for trial in history:
        if trial.candidate == session.current and trial.state is TrialState.FAILED:
            reason = f"{trial.reason}{_more_on(session, str(trial.reason))}"
            raise CurrentConfigFailsError(
                f"the current config of {session.spec.name} cannot be measured: {reason}",
                "; ".join(remedies([reason]))
                or "fix what is named there, then start again; the "
                "server's own words are in the run's logs/server.log",
            )


def _more_on(session: Session, reason: str) -> str:
    """What a model's own words do not say: that it was not loaded, or that its input is made up."""
    if "the model fail" not in reason:
        return ""
    for name in re.findall(r"Model '([^']+)' is not ready", reason):
        served = session.job.served.models.values()
        if name in model_names(session.spec.repository) and all(m.name != name for m in served):
            return f" ({name} lies in the repository, but is not loaded)"
    random = any(isinstance(s.inputs, RandomInputs) for s in session.spec.streams.values())
    return " (its input was made up of random values)" if random else ""


def _give_up(session: Session, searcher: Searcher, candidate: Candidate, number: int) -> None:
    """A trial that ran out of the budget's time leaves nothing behind."""
    if candidate == session.current:
        raise CurrentConfigFailsError(
            "the time of the budget was used up before the current config gave a result",
            "raise budget.time, or shorten workload.window",
        )
    searcher.give_up(candidate)
    session.events.note(f"trial {number} is given up: the time of the budget is used up")


def _too_many_failed(history: Sequence[Trial]) -> TooManyFailedTrialsError:
    failed = [t for t in history if t.state is TrialState.FAILED]
    return TooManyFailedTrialsError(
        f"{len(failed)} of {len(history)} trials failed; the last one said: {failed[-1].reason}",
        "the report lists every reason; `tune doctor` checks the machine, and logs/server.log "
        "holds the server's own words",
    )


def _run_trial(
    session: Session,
    history: Sequence[Trial],
    proposal: Proposal,
    clock: _Clock,
    screening: Screening,
) -> Trial | None:
    """One trial; if it goes wrong, that is its result and does not end the run.

    Its lap of the book began when it was chosen, so that choosing counts against the budget. None
    if the time was used up before it gave a result.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    number = len(history)
    bare = Trial(
        number,
        proposal.candidate,
        TrialState.FAILED,
        started_at=started_at,
        predicted=proposal.predicted,
    )
    if proposal.candidate != session.current:
        loaded = Trial(number, session.current, TrialState.MEASURED, memory=session.memory())
        if reason := cannot_fit(proposal.candidate, history or [loaded], session.spec.slos):
            bare = replace(bare, reason=f"not loaded: it {reason}", attempts=0, refused=True)
            return replace(bare, time=_lap(session.book))
    if lost := _Measuring(session, history, proposal, clock, screening).lost():
        bare = replace(bare, saturated=screening.seen[proposal.candidate.key])
        return _measured_trial(session, bare, None, lost)
    attempts = Attempts(lambda reason: session.events.note(f"trial {number}: {reason}"))
    try:
        for attempt in attempts:
            with attempt:
                deployment = session.bench.deploy(proposal.candidate)
                measuring = _Measuring(session, history, proposal, clock, screening)
                evaluation = measuring.look() or measuring.race() or measuring.climb()
    except OutOfTimeError as error:
        session.bench.lost(error.message)
        return None
    except TrialError as error:
        session.bench.lost(error.message)
        bare = replace(bare, reason=error.message, refused=_asks_too_much(error))
        return replace(bare, attempts=attempts.made, time=_lap(session.book))
    seen = screening.seen.get(proposal.candidate.key)
    bare = replace(bare, attempts=attempts.made, saturated=seen)
    return _measured_trial(session, bare, deployment, evaluation)


def _asks_too_much(error: TrialError) -> bool:
    """Whether a config that asks for more of the machine would fail too."""
    return isinstance(error, DeployRefusedError) or out_of_memory(error.message)


def _measured_trial(
    session: Session, bare: Trial, deployment: Deployment | None, evaluation: Evaluation
) -> Trial:
    if evaluation.limit is not None:
        session.events.note(f"trial {bare.number} is not measured further: {evaluation.limit}")
    return replace(
        bare,
        state=evaluation.state,
        points=evaluation.points,
        score=evaluation.score,
        deployment=None if deployment is None else deployment.kind.value,
        memory={} if deployment is None else session.memory(),
        time=_lap(session.book),
        limit=evaluation.limit,
    )


class _Measuring:
    """The measurements of one trial, whose candidate is deployed."""

    def __init__(
        self,
        session: Session,
        history: Sequence[Trial],
        proposal: Proposal,
        clock: _Clock,
        screening: Screening,
    ) -> None:
        self._session = session
        self._candidate, self._screening = proposal.candidate, screening
        self._informative = proposal.informative
        self._clock = clock
        # One for all: configs and loads are compared under the same arrivals. Only a near miss is
        # measured under others, since these arrivals may have suited it badly.
        self._seed = seeds.of_search(session.spec.search.seed)
        self._measure = partial(self._measured, self._seed)
        #: The current config is measured at least once in any case, for comparison.
        self._owed = proposal.candidate == session.current
        self._rules = self._race_rules(
            incumbent(history, session.spec.objective.goal, session.current)
        )

    def look(self) -> Evaluation | None:
        """Its end where it answers less than the load to beat when saturated; else None."""
        if self._rules is not None and not self._owed:
            self._refuse_when_late()
            self._screening.look(self._candidate, self._rules.to_beat)
        return self.lost()

    def lost(self) -> Evaluation | None:
        """The same by what is known already."""
        if self._rules is None or self._owed:
            return None
        return self._screening.lost(self._candidate, self._rules.to_beat)

    def race(self) -> Evaluation | None:
        """At the loads that the spec lists, or first at the load to beat.

        None where there is none to beat, or no result at it.
        """
        plan, objective = self._session.plan, self._session.spec.objective
        if plan.listed:
            return evaluate_listed(self._measure, objective, plan.listed)
        rules = self._rules
        if rules is None:
            return None
        start, most = rules.to_beat, partial(most_probes, self._session.spec, plan)
        try:
            raced = race(self._measure, plan, rules)
            if raced.lost:
                return raced.evaluation(objective)
            known = raced.points
            return evaluate(self._measure, objective, plan, start, at_most=most(start), known=known)
        except ModelFailsError:
            raise
        except ClientLimitError:
            plan = self._session.plan  # it is bounded by what can be sent now
        except LoadFailedError as error:
            # the load to beat may be so far beyond it that there is no result
            self._session.events.note(f"a lower load is tried: {error.message}")
            return None
        return evaluate(self._measure, objective, plan, start, at_most=most(start))

    def _race_rules(self, best: Trial | None) -> Race | None:
        """None where there is no load to beat."""
        spec = self._session.spec
        to_beat = None if best is None else best.sustained_level
        if best is None or to_beat is None:
            return None
        others = seeds.of_near_miss(spec.search.seed)
        second = SecondChance(self._session.near_miss, partial(self._measured, others, to_beat))
        gain, rate_to_beat = 1.0 + float(spec.confirm.min_gain), None
        if self._session.plan.arrivals.open_loop:
            to_beat *= gain
        elif best.score is not None:
            rate_to_beat = best.score.value * gain
        informative = self._inform if self._informative else None
        return Race(to_beat, rate_to_beat, informative, second)

    def climb(self) -> Evaluation:
        """To its capacity, from a load that a first look finds."""
        self._refuse_when_late()
        session = self._session
        bound = tightest_latency(session.spec.slos)
        first = first_level(session.bench, session.plan, self._seed, session.events.note, bound)
        plan = session.plan
        refuse_too_slow(session.spec, plan, first)
        if plan.arrivals.open_loop:
            self._tell_length(plan.levels.nearest(first.level))
        if first.lowest:
            lowest = plan.levels.nearest(first.level)
            plan = replace(plan, levels=replace(plan.levels, lowest=lowest))
        at_most = most_probes(session.spec, plan, first.level)
        return evaluate(self._measure, session.spec.objective, plan, first.level, at_most=at_most)

    def _tell_length(self, rate_per_s: float) -> None:
        """Before the first long window, once: how long windows are, and the run."""
        session = self._session
        told = long_windows(session.spec, rate_per_s) if self._owed else ""
        if told:
            run = estimate_run(session.job, Seen(rate_per_s, session.load_s))
            session.events.note(f"{told}; {run.sentence}")

    def _measured(self, seed: int, level: float) -> Point:
        self._refuse_when_late(level)
        point = self._session.bench.measure(level, seed)
        self._owed = False
        return point

    def _inform(self, level: float) -> Point:
        """Shows what a loser's requests take; too few are sent for a verdict on any SLO."""
        load = LoadPoint(self._session.plan.arrivals, level)
        if not load.arrivals.open_loop:
            return self._measure(level)
        self._refuse_when_late(level)
        window = informing_window(self._session.spec, load)
        point = self._session.bench.once(level, self._seed, window)
        slo = (replace(s, verdict=Verdict.NOT_ENOUGH_DATA, reason="") for s in point.slo)
        return replace(point, slo=tuple(slo))

    def _refuse_when_late(self, level: float | None = None) -> None:
        """Whether there is time for a measurement, of this level where it is known."""
        needs_s = 0.0 if level is None else length_s(self._session.spec, self._session.plan, level)
        if not self._owed and self._clock.left_s() <= needs_s:
            raise OutOfTimeError("the time of the budget is used up")
        whole_s = self._clock.time_s
        if self._owed and whole_s is not None and needs_s > whole_s:
            raise LoadFailedError(
                f"one measurement at {digits(level or 0.0, 3)}/s takes {minutes(needs_s)}, and "
                f"budget.time is {minutes(whole_s)}: raise it, or ask for a lower percentile"
            )


class _Clock:
    """The time of the budget; ``spent_s``: on the first load, and by an earlier part of the run."""

    def __init__(self, spent_s: float, time_s: float | None) -> None:
        self._from_s = time.monotonic() - spent_s
        self.time_s = time_s

    def elapsed_s(self) -> float:
        return time.monotonic() - self._from_s

    def left_s(self) -> float:
        return math.inf if self.time_s is None else self.time_s - self.elapsed_s()


def _lap(book: TimeBook) -> TrialTime:
    spent = book.lap()
    return TrialTime(
        searching_s=round(spent.pop(Phase.SEARCHING), 3),
        deploying_s=round(spent.pop(Phase.DEPLOYING), 3),
        measuring_s=round(spent.pop(Phase.MEASURING), 3),
        other_s=round(sum(spent.values()), 3),
    )
