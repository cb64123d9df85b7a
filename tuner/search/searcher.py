"""The searcher: what to measure next, given the finished and the pending trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.score.trial import Trial
from tuner.search.fits import Refusals
from tuner.search.strategy import Enough, Proposal, Strategy
from tuner.search.study import StudyRecord
from tuner.space.candidate import Candidate
from tuner.space.space import Space


class Searcher:
    """Proposes the strategy's designs and the current config first, then the strategy's proposals.

    No candidate is proposed twice, also while it is pending. The strategy receives the pending
    candidates.

    Where server arguments are searched, a strategy may make a batch of proposals from the same
    history; those for the running server are measured first. Batches begin at fixed trial numbers,
    so that a resumed run makes the same batches.

    Args:
        history: The finished trials of an earlier part of the run.
        record: The study to write the trials into.
        keep: Stores each trial.
        first: Candidates that are measured before the designs.
        several: Several benches measure, each with its server, so there are no batches.

    Attributes:
        history: The finished trials.
        pending: The proposals in progress.
        duplicates: Candidates that strategies drew again, although they were taken.
    """

    def __init__(
        self,
        space: Space,
        strategy: Strategy,
        history: Sequence[Trial] = (),
        record: StudyRecord | None = None,
        keep: Callable[[Trial], None] = lambda _: None,
        *,
        first: Sequence[Candidate] = (),
        several: bool = False,
    ) -> None:
        self._space = space
        self._strategy = strategy
        self._record = record
        self._keep = keep
        self._size = strategy.at_once if space.restarts and not several else 1
        self._batch: list[Proposal] = []
        self._enough: Enough | None = None
        self._batch_start = 0
        self._leads = [*dict.fromkeys((*first, *strategy.designs)), space.current]
        self._lead_given_up = self._by_looks = False
        self.history: list[Trial] = list(history)
        self.pending: list[Proposal] = []
        self.duplicates = 0
        if record is not None:
            record.write(self.history)

    def next(self) -> Proposal | Enough | None:
        """The next proposal; None where the space is exhausted.

        The result is the same until `start` is called.
        """
        number = len(self.history) + len(self.pending)
        current = self._space.current
        if number == 0 and not self._lead_given_up:
            return Proposal(self._leads[0])
        if current not in self.begun:
            return self._strategy.lead([current], self.history)
        if leads := self._leads_left():
            return self._strategy.lead(leads[:1] if self._by_looks else leads, self.history)
        if self.pending:
            return self._propose(number, self.history, self._taken(self.history))
        start = number - (number - 1) % self._size
        if start != self._batch_start:
            self._batch, self._enough = self._proposed(start)
            self._batch_start = start
        index = number - start
        return self._batch[index] if index < len(self._batch) else self._enough

    @property
    def leads(self) -> Sequence[Candidate]:
        """The first candidates that are not begun yet: designs, then the current config."""
        begun = self.begun
        return [c for c in self._leads if c not in begun]

    def rank(self, leads: Sequence[Candidate], *, by_looks: bool) -> None:
        """Sets the order of ``leads``; the current config remains first or second.

        ``by_looks``: the order is by looks, and final; else the strategy may change it.
        """
        self._leads, self._by_looks = list(leads), by_looks

    def start(self, proposal: Proposal) -> None:
        """Adds a proposal to the pending ones."""
        self.pending.append(proposal)

    def tell(self, trial: Trial) -> None:
        """Adds a finished trial, which is stored first."""
        self._keep(trial)
        self.history.append(trial)
        self._end(trial.candidate)
        if self._record is not None:
            self._record.write(self.history)

    def give_up(self, candidate: Candidate) -> None:
        """Removes a pending candidate that gave no result, as if it had never begun."""
        self._lead_given_up = True
        self._end(candidate)

    def _end(self, candidate: Candidate) -> None:
        self.pending = [p for p in self.pending if p.candidate != candidate]

    @property
    def begun(self) -> list[Candidate]:
        """The candidates of all finished and pending trials."""
        return [*(t.candidate for t in self.history), *(p.candidate for p in self.pending)]

    def _leads_left(self) -> list[Candidate]:
        """Designs that are not begun, without those that refusals rule out."""
        taken, refusals = self._taken(self.history), Refusals(self.history)
        left = (c for c in self._leads if c.key not in taken and c != self._space.current)
        return [c for c in left if not refusals.forbids(c)]

    def _propose(
        self, number: int, history: Sequence[Trial], taken: set[str]
    ) -> Proposal | Enough | None:
        """The strategy's proposal, without candidates that refusals rule out."""
        refusals, taken = Refusals(history), set(taken)
        pending = [p.candidate for p in self.pending]
        while isinstance(
            proposal := self._strategy.propose(number, history, taken, pending), Proposal
        ):
            if not refusals.forbids(proposal.candidate):
                break
            taken.add(proposal.candidate.key)
        return proposal

    def _taken(self, history: Sequence[Trial]) -> set[str]:
        begun = [*(t.candidate for t in history), *(p.candidate for p in self.pending)]
        return {self._space.canonical(c).key for c in (*begun, self._space.current)}

    def _proposed(self, start: int) -> tuple[list[Proposal], Enough | None]:
        """A batch of proposals, with the reason if the strategy ended it early."""
        history = self.history[:start]
        taken = self._taken(history)
        batch: list[Proposal] = []
        enough = None
        for number in range(start, start + self._size):
            proposal = self._propose(number, history, taken)
            if not isinstance(proposal, Proposal):
                enough = proposal
                break
            self.duplicates += proposal.duplicates
            taken.add(proposal.candidate.key)
            batch.append(proposal)
        running = history[-1].candidate.start

        def restarts(proposal: Proposal) -> tuple[bool, str]:
            start = proposal.candidate.start
            return start != running, str(start)

        return sorted(batch, key=restarts), enough
