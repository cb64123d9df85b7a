"""What a strategy is; `tuner.search.strategies.registry` has those there are.

It is a function of the finished and the pending trials: the same seed, trial number and history
give the same candidate. That is what makes a resumed run go on as if it had never stopped.
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
    """What to measure next.

    Attributes:
        duplicates: Candidates drawn on the way that were measured already.
        predicted: What a strategy that has a model expects of it.
        informative: It says much about the others: measured once more where it lost the race.
        outdone: The strategy expects it to lose the race: it has lost with its first miss.
        note: What the user should know about how it was chosen.
    """

    candidate: Candidate
    duplicates: int = 0
    predicted: Predicted | None = None
    informative: bool = False
    outdone: bool = False
    note: str | None = None


@dataclass(frozen=True)
class Enough:
    """No proposal: another trial can be expected to gain this share, which is not worth it."""

    expected_gain: float


class InOrder:
    """A strategy that expects nothing of candidates: they are measured in their order."""

    designs: Sequence[Candidate] = ()

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        return Proposal(leads[0], informative=True)


#: Proposals made at once where some need another server: few enough to learn in between.
BATCH = 4


class Strategy(Protocol):
    """Chooses what to measure next."""

    @property
    def at_once(self) -> int:
        """How many to propose from one history where that saves starts of the server."""

    @property
    def designs(self) -> Sequence[Candidate]:
        """What to measure first, the likeliest to be good first of all, if there are any."""

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        """Which of the designs and the current config, at least one, is measured next."""

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | Enough | None:
        """The candidate for trial ``number``: inside the space, and not taken.

        Args:
            number: Of the trial; with the seed the only source of chance.
            history: Finished trials, oldest first.
            taken: Keys of all candidates that are measured or about to be.
            pending: Those that other benches are measuring: a strategy with a model counts them
                as observed at what it expects of them.

        Returns:
            None when the space holds no other candidate.
        """


def chance(seed: int, number: int) -> random.Random:
    """Random numbers for one proposal: the same for a run and for its resumption."""
    return random.Random(f"{seed}/{number}")  # noqa: S311
