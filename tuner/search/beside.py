"""The search on several benches: each bench measures whole trials, which the run alone proposes.

A trial races against the best trial at the time when the bench received it. So it may be measured
longer than necessary, but never ends where a race against a later, better trial would not end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.errors import InterruptedRunError, TrialError
from tuner.fleet import BenchLostError
from tuner.meter.benches import Benches, WorkPlace
from tuner.meter.session import Session
from tuner.prepare.timebook import Phase
from tuner.reason import Reason
from tuner.score.trial import Trial, TrialBench, TrialState
from tuner.search.budget import StopReason
from tuner.search.measuring import Clock
from tuner.search.screening import KnownLooks, Screening
from tuner.search.searcher import Searcher
from tuner.search.searching import RunningSearch, run_trial
from tuner.search.strategy import Proposal
from tuner.space.words import changes_text


@dataclass(frozen=True)
class TrialWork:
    """One trial, for any bench.

    Attributes:
        history: The finished trials when the bench received this one.
        elapsed_s: Seconds of the search until then.
        time_s: The budget's time in seconds; None without a limit.
        looks: The results of screening until then.
    """

    history: tuple[Trial, ...]
    proposal: Proposal
    elapsed_s: float
    time_s: float | None
    looks: KnownLooks

    def __call__(self, session: Session) -> tuple[Trial | None, KnownLooks]:
        """Measures the trial on the bench of ``session``; None if the time was over too soon."""
        session.book.lap()
        clock, screening = Clock(self.elapsed_s, self.time_s), Screening(session, self.looks)
        name = changes_text(self.proposal.candidate, session.current)
        trial = run_trial(session, self.history, self.proposal, clock, screening, name)
        return trial, screening.looks


def search_beside(
    session: Session, benches: Benches, searcher: Searcher
) -> tuple[list[Trial], StopReason]:
    """Runs trials on all benches until the search is over; ``searcher`` stores each.

    Raises:
        TooManyFailedTrialsError: More trials failed than the budget allows.
        BenchLostError: No bench is left.
        InterruptedRunError: The user stopped it.
    """
    return _SearchBeside(session, benches, searcher).run()


class _SearchBeside(RunningSearch):
    def __init__(self, session: Session, benches: Benches, searcher: Searcher) -> None:
        super().__init__(session, searcher)
        self._benches = benches
        self._abandoned = False

    def run(self) -> tuple[list[Trial], StopReason]:
        session, searcher, history = self.session, self.searcher, self.searcher.history
        while True:
            reason = self.why_over()
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
        """Gives each free bench a trial; if no proposal is left for one, why the search ends."""
        searcher, clock = self.searcher, self.clock
        while self._benches.free and not self._benches.stopping:
            if self._abandoned and self.session.current in searcher.begun:
                break
            tried = sum(t.attempts > 0 for t in searcher.history) + len(searcher.pending)
            if tried >= self.limits.trials:
                break
            proposal = self.next()
            if isinstance(proposal, StopReason):
                return proposal
            self.start(proposal)
            history, looks = tuple(searcher.history), self.screening.looks
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
        number = len(self.searcher.history)
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
            self.screening.learn(looks)
        if trial is None:
            self.give_up(proposal.candidate)
            self.session.events.note(StopReason.ABANDONED.value.format(number=number))
            self._abandoned = True
            return
        measured_on = TrialBench(place.host, place.gpus, place.cpus)
        trial = replace(trial, number=number, bench=measured_on, predicted=proposal.predicted)
        self.add(trial)
        self.searcher.duplicates += proposal.duplicates
