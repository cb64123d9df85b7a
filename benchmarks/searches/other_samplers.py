"""Samplers that the product does not have, as strategies: what `gp` is compared with.

Optuna's are those of the version that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import optuna

from tuner.score.trial import Trial
from tuner.search.strategies.designs import designs
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategies.tpe import TpeStrategy
from tuner.search.strategy import Proposal, Strategy
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec


class DesignedTpe(TpeStrategy):
    """Optuna's TPE after the designs that `gp` begins with."""

    def __init__(self, space: Space, spec: Spec) -> None:
        super().__init__(space, spec)
        self.designs: Sequence[Candidate] = designs(space)
        self._startup_trials = len(self.designs)

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        return Proposal(leads[0], informative=True)


class DesignedGpSampler(DesignedTpe):
    """Optuna's Gaussian process after those designs; needs torch."""

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=0)


#: By the name of what is compared.
OTHERS: Mapping[str, Callable[[Space, Spec], Strategy]] = {
    "tpe with designs": DesignedTpe,
    "GPSampler with designs": DesignedGpSampler,
}
#: Of those, what the project's own environment cannot run.
NEED_TORCH = ("GPSampler with designs",)


def strategy_of(name: str, space: Space, spec: Spec) -> Strategy:
    """The one of this name, else the product's own that the spec names."""
    made = OTHERS.get(name, STRATEGIES[spec.search.strategy])
    return made(space, spec)
