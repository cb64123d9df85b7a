"""What a strategy is, and the strategies there are.

A strategy is a function of the finished trials: given the same seed, trial number and history it
proposes the same candidate. That is what makes a resumed run go on as if it had never stopped.
To add one, write a module and name it in `STRATEGIES`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from tuner.run.trial import Trial
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.model import Strategy as StrategyName


@dataclass(frozen=True)
class Proposal:
    """``duplicates``: candidates drawn on the way that were measured already."""

    candidate: Candidate
    duplicates: int = 0


class Strategy(Protocol):
    """Chooses what to measure next."""

    def propose(self, number: int, history: Sequence[Trial], taken: Set[str]) -> Proposal | None:
        """The candidate for trial ``number``: inside the space, and not taken.

        Args:
            number: Of the trial; with the seed the only source of chance.
            history: Finished trials, oldest first.
            taken: Keys of all candidates that are measured or about to be.

        Returns:
            None when the space holds no other candidate.
        """


def chance(seed: int, number: int) -> random.Random:
    """Random numbers for one proposal: the same for a run and for its resumption."""
    return random.Random(f"{seed}/{number}")  # noqa: S311


def _tpe(space: Space, spec: Spec) -> Strategy:
    from tuner.search.tpe import TpeStrategy

    return TpeStrategy(space, spec.objective.goal, spec.search.seed, spec.search.startup_trials)


def _random(space: Space, spec: Spec) -> Strategy:
    from tuner.search.random_search import RandomStrategy

    return RandomStrategy(space, spec.search.seed)


def _grid(space: Space, spec: Spec) -> Strategy:
    from tuner.search.grid import GridStrategy

    return GridStrategy(space, spec.search.seed, spec.budget.trials)


STRATEGIES: Mapping[StrategyName, Callable[[Space, Spec], Strategy]] = {
    StrategyName.TPE: _tpe,
    StrategyName.RANDOM: _random,
    StrategyName.GRID: _grid,
}
