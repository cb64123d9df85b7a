"""Grid search: every listed value, and up to eight of each range."""

from __future__ import annotations

from collections.abc import Sequence, Set

from tuner.score.trial import Trial
from tuner.search.strategies.random_search import draw_new
from tuner.search.strategy import BATCH, Proposal, chance
from tuner.space.space import Space
from tuner.spec.model import Spec

#: Values of a range: enough to see its shape, few enough to be measured.
POINTS = 8


class GridStrategy:
    """In order when the budget is enough for the whole grid, else in random order over all of it:
    a grid cut off early would only show one corner.
    """

    at_once = BATCH
    first_guess = None

    def __init__(self, space: Space, spec: Spec) -> None:
        self._space = space.coarse(POINTS)
        self._seed = spec.search.seed
        self._ordered = self._space.size().count <= spec.budget.trials

    def propose(self, number: int, history: Sequence[Trial], taken: Set[str]) -> Proposal | None:
        if not self._ordered:
            return draw_new(self._space, chance(self._seed, number), taken)
        new = (c for c in self._space.enumerate() if c.key not in taken)
        return next((Proposal(c) for c in new), None)
