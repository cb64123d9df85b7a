"""The search on several benches: each measures a whole trial, and the run alone proposes.

A trial races against the best config that was known when it was handed out. So it may be measured
further than it needed, and is never stopped where the best one of all would not have stopped it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.errors import InterruptedRunError, TrialError
from tuner.fleet import BenchLostError
from tuner.meter.benches import Benches, WorkPlace
from tuner.meter.session import Session
from tuner.prepare.timebook import Phase
from tuner.reason import Reason
from tuner.score.trial import Trial, TrialBench, TrialState
from tuner.search.budget import SearchLimits, StopReason
from tuner.search.estimate import spent_s
from tuner.search.incumbent import incumbent
from tuner.search.measuring import Clock
from tuner.search.outlook import outlook_of
from tuner.search.screening import KnownLooks, Screening
from tuner.search.searcher import Searcher
from tuner.search.searching import give_up, refuse_unmeasurable, run_trial, why_over
from tuner.search.strategy import Enough, Proposal
from tuner.space.words import changes_text


@dataclass(frozen=True)
class TrialWork:
    """One trial for any bench.

    Attributes:
        history: Trials that had ended when it was handed out.
        elapsed_s: Of the search's time by then; None of ``time_s``: there is no limit.
        looks: What screening has shown by then.
    """

    history: tuple[Trial, ...]
    proposal: Proposal
    elapsed_s: float
    time_s: float | None
    looks: KnownLooks

    def __call__(self, session: Session) -> tuple[Trial | None, KnownLooks]:
        """Measures it on the bench of ``session``."""
        session.book.lap()
        clock, screening = Clock(self.elapsed_s, self.time_s), Screening(session, self.looks)
        name = changes_text(self.proposal.candidate, session.current)
        trial = run_trial(session, self.history, self.proposal, clock, screening, name)
        return trial, screening.looks


def search_beside(
    session: Session, benches: Benches, searcher: Searcher
) -> tuple[list[Trial], StopReason]:
    """Runs trials on all benches until the budget says stop; ``searcher`` keeps each.

    Raises:
        TooManyFailedTrialsError: More trials failed than the budget allows.
        BenchLostError: No bench is left.
        InterruptedRunError: The user stopped it.
    """
    return _Search(session, benches, searcher).run()


class _Search:
    def __init__(self, session: Session, benches: Benches, searcher: Searcher) -> None:
        self._session, self._benches, self._searcher = session, benches, searcher
        self._budget = SearchLimits.of(session.spec)
        spent = session.load_s + spent_s(searcher.history)
        self._clock = Clock(spent, self._budget.time_s)
        self._screening = Screening(session)
        self._abandoned = False

    def run(self) -> tuple[list[Trial], StopReason]:
        session, searcher, history = self._session, self._searcher, self._searcher.history
        session.events.outlook(outlook_of(session.job, history, self._clock.elapsed_s()))
        leads = self._screening.ranked(searcher.leads)
        searcher.rank(leads, by_looks=len(self._screening.seen) > 1)
        while True:
            refuse_unmeasurable(session, history)
            reason = why_over(session, history, self._budget, self._clock)
            ended = self._hand_out() if reason is None else None
            if not searcher.pending:
                session.checkpoint()
                if self._abandoned and any(t.candidate == session.current for t in history):
                    return history, StopReason.ABANDONED
                if reason is not None:
                    return history, reason
                if ended is not None:
                    return history, ended
            with session.book.phase(Phase.MEASURING):
                done = self._benches.next_done()
            if isinstance(done.error, InterruptedRunError):
                session.checkpoint()
                searcher.pending = []
                raise done.error
            if isinstance(done.work, TrialWork):
                self._take(done.work.proposal, done.place, done.value, done.error)

    def _hand_out(self) -> StopReason | None:
        """Gives each free bench a trial; why there is none for it, where nothing is left."""
        session, searcher, clock = self._session, self._searcher, self._clock
        proposal: Proposal | Enough | None = None
        while self._benches.free and not self._benches.stopping:
            if self._abandoned and session.current in searcher.begun:
                break
            tried = sum(t.attempts > 0 for t in searcher.history) + len(searcher.pending)
            if tried >= self._budget.trials:
                break
            with session.book.phase(Phase.SEARCHING):
                proposal = searcher.next()
            if not isinstance(proposal, Proposal):
                return StopReason.EXHAUSTED if proposal is None else StopReason.ENOUGH
            if proposal.note is not None:
                session.events.note(proposal.note)
            number = len(searcher.history) + len(searcher.pending)
            searcher.start(proposal)
            session.events.trial_started(number, proposal.candidate, session.current)
            history, looks = tuple(searcher.history), self._screening.looks
            work = TrialWork(history, proposal, clock.elapsed_s(), clock.time_s, looks)
            self._benches.hand_out(work)
        return None

    def _take(
        self,
        proposal: Proposal,
        place: WorkPlace,
        value: tuple[Trial | None, KnownLooks] | None,
        error: Exception | None,
    ) -> None:
        session, searcher = self._session, self._searcher
        number = len(searcher.history)
        if isinstance(error, BenchLostError | TrialError):
            reason = Reason.of_text(error.message)
            trial: Trial | None = Trial(
                number, proposal.candidate, TrialState.FAILED, reason=reason, attempts=2
            )
        elif error is not None:
            raise error
        else:
            assert value is not None
            trial, looks = value
            self._screening.learn(looks)
        if trial is None:
            give_up(session, searcher, proposal.candidate)
            session.events.note(StopReason.ABANDONED.value.format(number=number))
            self._abandoned = True
            return
        measured_on = TrialBench(place.host, place.gpus, place.cpus)
        trial = replace(trial, number=number, bench=measured_on, predicted=proposal.predicted)
        with session.book.phase(Phase.WRITING):
            searcher.tell(trial)
        searcher.duplicates += proposal.duplicates
        history: Sequence[Trial] = searcher.history
        best = incumbent(history, session.spec.objective.goal, session.current)
        session.events.outlook(outlook_of(session.job, history, self._clock.elapsed_s()))
        session.events.trial_finished(trial, best)
