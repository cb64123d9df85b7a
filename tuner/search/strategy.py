"""The protocol of a strategy; `tuner.search.strategies.registry` lists the strategies.

A strategy is a function of the finished and the pending trials: the same seed, trial number and
history give the same candidate. So a resumed run continues as if it had never stopped.
"""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from tuner.score.trial import Predicted, Trial
from tuner.space.candidate import Candidate


@dataclass(frozen=True)
class Proposal:
    """A candidate to measure next.

    Attributes:
        duplicates: The number of taken candidates that the strategy drew before this one.
        predicted: The score that the strategy's model expects; None without a model.
        informative: The result says much about other candidates: if it loses the race, the
            candidate is measured once more.
        outdone: The strategy expects the candidate to lose the race: it has no second chance.
    """

    candidate: Candidate
    duplicates: int = 0
    predicted: Predicted | None = None
    informative: bool = False
    outdone: bool = False


class Enough:
    """No proposal: the expected gain of another trial is too small."""


class InOrder:
    """Base of strategies without expectations: the first candidates keep their order."""

    designs: Sequence[Candidate] = ()

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        return Proposal(leads[0], informative=True)


#: Proposals per batch where some need another server: few, so that a strategy learns in between.
BATCH = 4


class Strategy(Protocol):
    """Chooses what to measure next."""

    @property
    def at_once(self) -> int:
        """Proposals per batch from one history, where that saves starts of the server."""

    @property
    def designs(self) -> Sequence[Candidate]:
        """Candidates to measure first, the most promising first; may be empty."""

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        """Which of ``leads`` is measured next: designs or the current config, at least one."""

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | Enough | None:
        """The candidate for trial ``number``: inside the space, and not taken.

        Args:
            number: The trial's number; with the seed, the only source of randomness.
            history: Finished trials, oldest first.
            taken: Keys of all candidates of finished and pending trials.
            pending: Candidates that other benches are measuring: a strategy with a model treats
                each as observed at its expected value.

        Returns:
            The proposal; `Enough` where the expected gain is too small; None where the space has
            no other candidate.
        """


def chance(seed: int, number: int) -> random.Random:
    """The random generator for one proposal: the same in a run and when it is resumed."""
    return random.Random(f"{seed}/{number}")  # noqa: S311
