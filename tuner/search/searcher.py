"""The loop's partner: what to measure next, and what was learned; a worker's too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tuner.record.reading import UnreadableFileError
from tuner.score.trial import Trial
from tuner.search.fits import Refusals
from tuner.search.strategy import Enough, Proposal, Strategy
from tuner.search.study.files import answer
from tuner.search.study.record import Claim, StudyRecord
from tuner.space.candidate import Candidate
from tuner.space.space import Space


class Searcher:
    """Begins with the strategy's designs, where it has some, and the current config.

    The strategy proposes the others, none twice.

    Where server arguments are searched, a strategy may make several proposals from the same
    history, and those that the running server can take are measured first. Batches begin at fixed
    trial numbers, so that a resumed run makes the same ones.

    Workers may measure beside it, see `JoinedSearcher`. What they have finished is taken over
    before each proposal, and what they have claimed is not proposed.

    Args:
        record: The study to write the trials into; where workers put theirs.
        keep: Stores each trial with its number in the run, a worker's when it is taken over.
        note: Receives a sentence about each trial that is dropped, since it does not fit the
            run's search.
        files: What the run's files hold, for a worker to compare its own with.
    """

    def __init__(
        self,
        space: Space,
        strategy: Strategy,
        history: Sequence[Trial] = (),
        record: StudyRecord | None = None,
        keep: Callable[[Trial], None] = lambda _: None,
        note: Callable[[str], None] = lambda _: None,
        files: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._space = space
        self._strategy = strategy
        self._record = record
        self._keep = keep
        self._note = note
        self._files = files
        self._claimed: set[str] = set()
        self._dropped: set[str] = set()
        self._size = strategy.at_once if space.restarts else 1
        self._batch: list[Proposal] = []
        self._enough: Enough | None = None
        self._batch_start = 0
        self._leads = [*strategy.designs, space.current]
        self._lead_given_up = self._by_looks = False
        self.history: list[Trial] = list(history)
        self.duplicates = 0
        if record is not None:
            record.resume(self.history)

    def next(self) -> Proposal | Enough | None:
        """What to measure as trial ``len(history)``; None when the space is exhausted.

        Asked again before `tell`, it answers the same.
        """
        self._take_over()
        number = len(self.history)
        current = self._space.current
        if number == 0 and not self._lead_given_up:
            return Proposal(self._leads[0])
        if all(t.candidate != current for t in self.history):
            return self._strategy.lead([current], self.history)
        if leads := self._leads_left():
            return self._strategy.lead(leads[:1] if self._by_looks else leads, self.history)
        start = number - (number - 1) % self._size
        if start != self._batch_start:
            self._batch, self._enough = self._proposed(start)
            self._batch_start = start
        index = number - start
        proposal = self._batch[index] if index < len(self._batch) else self._enough
        if isinstance(proposal, Proposal) and proposal.candidate.key in self._claimed:
            return self._propose(number, self.history, self._taken(self.history))
        return proposal

    @property
    def leads(self) -> Sequence[Candidate]:
        """What a search begins with and nobody has measured: designs, then the current config."""
        self._take_over()
        known = {t.candidate.key for t in self.history} | self._claimed
        return [c for c in self._leads if c.key not in known]

    def rank(self, leads: Sequence[Candidate], *, by_looks: bool) -> None:
        """Measures ``leads`` in this order, but the current config no later than second.

        ``by_looks``: they were looked at; else a strategy may expect more of another one.
        """
        self._leads, self._by_looks = list(leads), by_looks

    def start(self, candidate: Candidate) -> bool:
        """``candidate`` is about to be measured as the next trial; False when a worker has it.

        No worker measures the first trial and the current config, whoever claims them.
        """
        if self._record is None or self._record.started(len(self.history), candidate):
            return True
        return not self.history or candidate == self._space.current

    def tell(self, trial: Trial) -> None:
        """A finished trial, which is stored before anything else."""
        self._keep(trial)
        self.history.append(trial)
        if self._record is not None:
            self._record.write(self.history)

    def give_up(self, candidate: Candidate) -> None:
        """The started trial gave no result, and is treated as if it had never begun."""
        self._lead_given_up = True
        if self._record is not None:
            self._record.given_up(candidate)

    def over(self) -> None:
        """The search has ended: workers stop, and what they have finished is taken over."""
        if self._record is not None:
            self._record.close_to_workers()
        self._take_over()

    def _take_over(self) -> None:
        """Trials that workers have finished get the next numbers of the run."""
        if self._record is not None:
            answer(self._record, self._files)
            claims = self._record.claims()
            self._claimed = {c.candidate_key for c in claims}
            self._learn([c for c in claims if c.by_worker])

    def _learn(self, claims: Sequence[Claim]) -> None:
        """Finished trials that are not known yet get the next numbers here."""
        known = {t.candidate.key for t in self.history}
        for claim in claims:
            trial = None if claim.candidate_key in known else self._usable(claim)
            if trial is not None:
                numbered = replace(trial, number=len(self.history))
                self._keep(numbered)
                self.history.append(numbered)
                known.add(claim.candidate_key)

    def _usable(self, claim: Claim) -> Trial | None:
        """The trial of a finished claim; None, reported once, where it does not fit the run."""
        try:
            return claim.trial(self._space)
        except UnreadableFileError as error:
            if claim.candidate_key not in self._dropped:
                self._dropped.add(claim.candidate_key)
                self._note(f"dropped: {error.message}")
            return None

    def _leads_left(self) -> list[Candidate]:
        """Designs, without those that ask for as much as what was refused."""
        taken, refusals = self._taken(self.history), Refusals(self.history)
        left = (c for c in self._leads if c.key not in taken and c != self._space.current)
        return [c for c in left if not refusals.forbids(c)]

    def _propose(
        self, number: int, history: Sequence[Trial], taken: set[str]
    ) -> Proposal | Enough | None:
        """The strategy's proposal; nothing that asks for as much as what was refused."""
        refusals, taken = Refusals(history), set(taken)
        while isinstance(proposal := self._strategy.propose(number, history, taken), Proposal):
            if not refusals.forbids(proposal.candidate):
                break
            taken.add(proposal.candidate.key)
        return proposal

    def _taken(self, history: Sequence[Trial]) -> set[str]:
        known = {self._space.canonical(t.candidate).key for t in history}
        return known | self._claimed | {self._space.canonical(self._space.current).key}

    def _proposed(self, start: int) -> tuple[list[Proposal], Enough | None]:
        """A batch, and why it is shorter than requested when the strategy had enough."""
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
        running = [t for t in history if t.worker is None][-1].candidate.start

        def restarts(proposal: Proposal) -> tuple[bool, str]:
            start = proposal.candidate.start
            return start != running, str(start)

        return sorted(batch, key=restarts), enough


class JoinedSearcher(Searcher):
    """Proposes by the run's own strategy from all trials that anybody has finished.

    The run measures trial 0 and the current config, and alone decides when the search is over.

    Args:
        trials: The run's budget; no more is claimed, finished trials included.
        wait: Called while there is nothing to do; returns after a while, or raises to stop.

    Attributes:
        history: Finished trials in the order in which they became known here, numbered so.
        mine: Of those the ones that this worker measured.
    """

    def __init__(
        self,
        space: Space,
        strategy: Strategy,
        record: StudyRecord,
        trials: int,
        wait: Callable[[], None],
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(space, strategy, note=note)
        self._shared = record
        self._trials = trials
        self._wait = wait
        self.mine: list[Trial] = []

    @property
    def leads(self) -> Sequence[Candidate]:
        """The run looks at them."""
        return ()

    def next(self) -> Proposal | None:
        """What to measure now; waits for it. None once the run's search is over."""
        asked: tuple[set[str], int] | None = None
        while self._shared.searching:
            claims = self._shared.claims()
            self._learn(claims)
            claimed = {c.candidate_key for c in claims}
            known = claimed, len(self.history)
            if self.history and len(claims) < self._trials and known != asked:
                asked = known  # with nothing new the answer would be the same
                taken = claimed | self._taken(self.history)
                proposal = self._propose(len(claims), self.history, taken)
                if isinstance(proposal, Proposal):
                    return proposal
            self._wait()
        return None

    def start(self, candidate: Candidate) -> bool:
        """Claims the candidate; False when somebody else has it."""
        return self._shared.started(len(self.history), candidate)

    def tell(self, trial: Trial) -> None:
        """A finished trial, which is handed in before anything else."""
        if self._shared.hand_in(trial):
            self.history.append(trial)
            self.mine.append(trial)
        else:
            self._note("dropped: somebody else took its config while this worker was cut off")
