"""A worker's partner: what to measure next for a run that somebody else keeps."""

from __future__ import annotations

from collections.abc import Callable

from tuner.score.trial import Trial
from tuner.search.searcher import Searcher
from tuner.search.strategy import Proposal, Strategy
from tuner.search.study.record import StudyRecord
from tuner.space.candidate import Candidate
from tuner.space.space import Space


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

    def next(self) -> Proposal | None:
        """What to measure now; waits for it. None once the run's search is over."""
        asked: tuple[int, int] | None = None
        while self._shared.searching:
            claims = self._shared.claims()
            self._learn(claims)
            known = len(claims), len(self.history)
            if self.history and len(claims) < self._trials and known != asked:
                asked = known  # with nothing new the answer would be the same
                taken = {c.candidate_key for c in claims} | self._taken(self.history)
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
        self._shared.write([trial])
        self.history.append(trial)
        self.mine.append(trial)
