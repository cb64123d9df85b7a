"""The search: one trial after the other, each stored on disk before the next begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tuner.errors import (
    DeployRefusedError,
    OutOfTimeError,
    TooManyFailedTrialsError,
    TrialError,
)
from tuner.meter.again import Attempts
from tuner.meter.evaluate import Evaluation
from tuner.meter.session import Session
from tuner.modelconfig.files import model_names
from tuner.prepare.timebook import Phase, TimeBook
from tuner.reason import Reason, ReasonKind
from tuner.record.remedies import remedies
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.search.budget import Progress, SearchLimits, StopReason, lone_miss, out_of_reach
from tuner.search.estimate import spent_s
from tuner.search.fits import cannot_fit
from tuner.search.incumbent import incumbent
from tuner.search.measuring import Clock, Measuring
from tuner.search.outlook import outlook_of
from tuner.search.screening import Screening
from tuner.search.searcher import Searcher
from tuner.search.strategy import Proposal
from tuner.sentences import failed, sentence
from tuner.server.log import lacks_memory, not_ready
from tuner.space.candidate import Candidate
from tuner.spec.workload import RandomInputs
from tuner.triton.deploy import Deployment


class CurrentConfigFailsError(TooManyFailedTrialsError):
    """The current config gives no measurement, so no config can be compared with it."""


#: Reasons of a failing model whose cause may be a missing model, or random inputs.
_FAILING = (ReasonKind.MODEL_FAILS, ReasonKind.MODEL_FAILED_REQUESTS)


class RunningSearch:
    """What one bench or several need to run the trials of a search.

    Attributes:
        clock: The budget's time.
        screening: The looks at configs; those of the first configs are taken at once.
    """

    def __init__(self, session: Session, searcher: Searcher) -> None:
        self.session, self.searcher = session, searcher
        self.limits = SearchLimits.of(session.spec)
        self.clock = Clock(session.load_s + spent_s(searcher.history), self.limits.time_s)
        self.screening = Screening(session)
        self._show_outlook()
        leads = self.screening.ranked(searcher.leads)
        searcher.rank(leads, by_looks=len(self.screening.seen) > 1)

    def why_over(self) -> StopReason | None:
        """Why the search is over, by the budget; None while it continues.

        Raises:
            CurrentConfigFailsError: The trial of the current config failed.
            TooManyFailedTrialsError: More trials failed than the budget allows.
        """
        session, history, current = self.session, self.searcher.history, self.session.current
        _refuse_unmeasurable(session, history)
        tried = [t for t in history if t.attempts]
        slos, plan = session.spec.slos, session.plan
        hopeless = bool(lone_miss(history, slos, session.job.space))
        reason = self.limits(
            Progress(
                trials=len(tried),
                failed=sum(t.state is TrialState.FAILED for t in tried),
                elapsed_s=self.clock.elapsed_s(),
                begun=any(t.candidate == current for t in history),
                out_of_reach=hopeless or out_of_reach(history, slos, plan, current),
            )
        )
        if reason is StopReason.TOO_MANY_FAILED:
            raise _too_many_failed(history)
        return reason

    def next(self) -> Proposal | StopReason:
        """The next proposal; without one, why the search is over."""
        with self.session.book.phase(Phase.SEARCHING):
            proposal = self.searcher.next()
        if isinstance(proposal, Proposal):
            return proposal
        return StopReason.EXHAUSTED if proposal is None else StopReason.ENOUGH

    def start(self, proposal: Proposal) -> None:
        """Shows the trial of a proposal, which begins now."""
        number = len(self.searcher.history) + len(self.searcher.pending)
        self.searcher.start(proposal)
        current = self.session.current
        self.session.events.trial_started(number, proposal.candidate, current)

    def add(self, trial: Trial) -> None:
        """Stores a finished trial, and shows it."""
        session, history = self.session, self.searcher.history
        with session.book.phase(Phase.WRITING):
            self.searcher.tell(trial)
        best = incumbent(history, session.spec.objective.goal, session.current)
        self._show_outlook()
        session.events.trial_finished(trial, best)

    def give_up(self, candidate: Candidate) -> None:
        """Drops a trial for which the budget's time was too short.

        Raises:
            CurrentConfigFailsError: The trial is that of the current config.
        """
        if candidate == self.session.current:
            reason = Reason(ReasonKind.CURRENT_CONFIG_OUT_OF_TIME)
            raise failed(CurrentConfigFailsError, reason, "; ".join(remedies([reason])))
        self.searcher.give_up(candidate)

    def _show_outlook(self) -> None:
        outlook = outlook_of(self.session.job, self.searcher.history, self.clock.elapsed_s())
        self.session.events.outlook(outlook)


def search(session: Session, searcher: Searcher) -> tuple[list[Trial], StopReason]:
    """Runs trials until the search is over; ``searcher`` stores each.

    Raises:
        TooManyFailedTrialsError: More trials failed than the budget allows.
        InterruptedRunError: The user stopped it.
    """
    running, history = RunningSearch(session, searcher), searcher.history  # grows with each trial
    while True:
        session.book.lap()
        if reason := running.why_over():
            return history, reason
        proposal = running.next()
        if isinstance(proposal, StopReason):
            return history, proposal
        session.checkpoint()
        running.start(proposal)
        trial = run_trial(session, history, proposal, running.clock, running.screening)
        if trial is not None:
            running.add(trial)
            continue
        running.give_up(proposal.candidate)
        if any(t.candidate == session.current for t in history):
            return history, StopReason.ABANDONED  # there is no time for another trial, either
        session.events.note(StopReason.ABANDONED.value.format(number=len(history)))


def _refuse_unmeasurable(session: Session, history: Sequence[Trial]) -> None:
    """Ends the run where the current config failed, since no config can be compared with it.

    Raises:
        CurrentConfigFailsError: The trial of the current config failed.
    """
    for trial in history:
        if trial.candidate == session.current and trial.state is TrialState.FAILED:
            causes = [*filter(None, [trial.reason]), *_more_on(session, trial.reason)]
            facts = {"name": session.spec.name}
            reason = Reason(ReasonKind.CURRENT_CONFIG_FAILS, facts=facts, causes=tuple(causes))
            hint = "; ".join(remedies([reason])) or "fix that, then start again"
            raise failed(CurrentConfigFailsError, reason, hint)


def _more_on(session: Session, reason: Reason | None) -> Iterator[Reason]:
    """Causes that a model's message does not name: a model is not loaded, or inputs are random."""
    failing = [r for r in (reason.chain() if reason else ()) if r.kind in _FAILING]
    if not failing:
        return
    for name in (name for r in failing for words in r.quotes() for name in not_ready(words)):
        served = session.job.served.models.values()
        if name in model_names(session.spec.repository) and all(m.name != name for m in served):
            yield Reason(ReasonKind.MODEL_NOT_LOADED, facts={"model": name})
            return
    if any(isinstance(s.inputs, RandomInputs) for s in session.spec.streams.values()):
        yield Reason(ReasonKind.RANDOM_INPUTS)


def _too_many_failed(history: Sequence[Trial]) -> TooManyFailedTrialsError:
    reasons = [t.reason for t in history if t.state is TrialState.FAILED]
    facts = {"failed_count": len(reasons), "trial_count": len(history)}
    reason = Reason(
        ReasonKind.TOO_MANY_FAILED, facts=facts, causes=tuple(filter(None, reasons[-1:]))
    )
    hint = "the report lists every reason; `tune doctor` checks the machine"
    return failed(TooManyFailedTrialsError, reason, hint)


def run_trial(
    session: Session,
    history: Sequence[Trial],
    proposal: Proposal,
    clock: Clock,
    screening: Screening,
    name: str = "",
) -> Trial | None:
    """Runs one trial; errors make it a failed trial. None if the time was over before a result.

    ``name``: the name of the trial in notes; by default ``trial NUMBER``.
    """
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    number = len(history)
    name = name or f"trial {number}"
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
            bare = replace(bare, reason=reason, attempts=0, refused=True)
            return replace(bare, time=_lap(session.book))
    if lost := Measuring(session, history, proposal, clock, screening).lost():
        bare = replace(bare, saturated=screening.seen[proposal.candidate.key])
        return _measured_trial(session, bare, None, lost, name)
    attempts = Attempts(lambda reason: session.events.note(f"{name}: {reason}"))
    try:
        for attempt in attempts:
            with attempt:
                deployment = session.bench.deploy(proposal.candidate)
                measuring = Measuring(session, history, proposal, clock, screening)
                evaluation = measuring.look() or measuring.race() or measuring.climb()
    except OutOfTimeError as error:
        session.bench.lost(error.reason)
        return None
    except TrialError as error:
        session.bench.lost(error.reason)
        bare = replace(bare, reason=error.reason, refused=_asks_too_much(error))
        return replace(bare, attempts=attempts.made, time=_lap(session.book))
    seen = screening.seen.get(proposal.candidate.key)
    bare = replace(bare, attempts=attempts.made, saturated=seen)
    return _measured_trial(session, bare, deployment, evaluation, name)


def _asks_too_much(error: TrialError) -> bool:
    """Whether a config that needs more of the machine would fail, too."""
    slow = any(reason.kind is ReasonKind.LOAD_TIMEOUT for reason in error.reason.chain())
    return isinstance(error, DeployRefusedError) or slow or lacks_memory(error.reason)


def _measured_trial(
    session: Session,
    bare: Trial,
    deployment: Deployment | None,
    evaluation: Evaluation,
    name: str,
) -> Trial:
    if evaluation.limit is not None:
        limit = sentence(evaluation.limit)
        session.events.note(f"{name} is not measured further: {limit}")
    return replace(
        bare,
        state=evaluation.state,
        points=evaluation.points,
        score=evaluation.score,
        deployment=None if deployment is None else deployment.kind.value,
        memory={} if deployment is None else session.memory(),
        batch_calls=() if deployment is None else session.bench.batch_calls,
        time=_lap(session.book),
        limit=evaluation.limit,
    )


def _lap(book: TimeBook) -> TrialTime:
    spent = book.lap()
    return TrialTime(
        searching_s=round(spent.pop(Phase.SEARCHING), 3),
        deploying_s=round(spent.pop(Phase.DEPLOYING), 3),
        measuring_s=round(spent.pop(Phase.MEASURING), 3),
        other_s=round(sum(spent.values()), 3),
    )
