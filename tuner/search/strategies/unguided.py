"""Strategies that ignore earlier trials: grid, and random, the baseline for all others."""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from itertools import islice

from tuner.score.trial import Trial
from tuner.search.strategy import BATCH, InOrder, Proposal, chance
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec

#: Random draws before the remaining candidates are enumerated.
MOST_DRAWS = 50
#: Most steps of that enumeration; candidates that Triton would refuse take steps, too.
MOST_STEPS = 50_000
#: Most enumerated candidates from which one is chosen.
MOST_LISTED = 1000


class RandomStrategy(InOrder):
    at_once = BATCH

    def __init__(self, space: Space, spec: Spec) -> None:
        self._space = space
        self._seed = spec.search.seed

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | None:
        return draw_new(self._space, chance(self._seed, number), taken)


def draw_new(space: Space, rng: random.Random, taken: Set[str]) -> Proposal | None:
    """A random candidate that is not taken; None where none is left."""
    for duplicates in range(MOST_DRAWS):
        candidate = space.sample(rng)
        if candidate is None:
            break
        if candidate.key not in taken:
            return Proposal(candidate, duplicates)
    listed = filter(None, islice(space.steps(), MOST_STEPS))
    new = (c for c in listed if c.key not in taken and not space.violations(c))
    left: list[Candidate] = list(islice(new, MOST_LISTED))
    return Proposal(rng.choice(left), MOST_DRAWS) if left else None


#: Values of a range in a grid: enough to show its effect, few enough to measure.
POINTS = 8


class GridStrategy(InOrder):
    """The grid in order if the budget is enough for all of it, else in random order.

    In order, a grid that the budget cuts off would cover only one corner of the space.
    """

    at_once = BATCH

    def __init__(self, space: Space, spec: Spec) -> None:
        self._space = space.coarse(POINTS)
        self._seed = spec.search.seed
        self._ordered = self._space.size().count <= spec.budget.trials

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | None:
        if not self._ordered:
            return draw_new(self._space, chance(self._seed, number), taken)
        new = (c for c in self._space.enumerate() if c.key not in taken)
        return next((Proposal(c) for c in new), None)
