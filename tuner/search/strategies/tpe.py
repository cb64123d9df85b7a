"""Optuna's multivariate TPE with the SLOs as constraints.

At each proposal, the sampler is rebuilt from the history, with a seed from the run's seed and the
trial's number only. If the sampler draws a candidate that is taken, it draws again: reporting the
candidate's result again would count one measurement twice.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from tuner.score.trial import Trial
from tuner.search.optuna_trial import (
    CONSTRAINTS,
    OptunaValue,
    distributions,
    frozen_trial,
    optuna,
    quiet_optuna,
    suggest,
)
from tuner.search.strategies.unguided import draw_new
from tuner.search.strategy import BATCH, InOrder, Proposal, chance
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.slo import Goal

#: Most draws from the sampler before a random candidate is proposed.
MOST_DRAWS = 15


class TpeStrategy(InOrder):
    """Random candidates for ``search.startup_trials``, then those of Optuna's TPE sampler."""

    at_once = BATCH

    def __init__(self, space: Space, spec: Spec) -> None:
        self._space = space
        self._goal = spec.objective.goal
        self._seed = spec.search.seed
        self._startup_trials = spec.search.startup_trials

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | None:
        rng = chance(self._seed, number)
        if len(history) < self._startup_trials:
            return draw_new(self._space, rng, taken)
        duplicates = 0
        with quiet_optuna():
            study = self._study(history, rng.getrandbits(32))
            for _ in range(MOST_DRAWS):
                candidate = self._draw(study)
                if not self._space.contains(candidate) or self._space.violations(candidate):
                    continue
                if candidate.key not in taken:
                    return Proposal(candidate, duplicates)
                duplicates += 1
        fallback = draw_new(self._space, rng, taken)
        if fallback is None:
            return None
        return Proposal(fallback.candidate, duplicates + fallback.duplicates)

    def _study(self, history: Sequence[Trial], seed: int) -> optuna.Study:
        maximise = self._goal is Goal.MAXIMIZE_GOODPUT
        study = optuna.create_study(
            sampler=self._sampler(seed), direction="maximize" if maximise else "minimize"
        )
        study.add_trials(frozen_trial(self._space, self._goal, t) for t in history)
        return study

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        more: dict[str, Any] = {}
        if not hasattr(optuna.trial.FrozenTrial, "constraints"):  # Optuna 5 reads them itself
            more["constraints_func"] = lambda trial: trial.system_attrs[CONSTRAINTS]
        return optuna.samplers.TPESampler(
            n_startup_trials=0, seed=seed, multivariate=True, group=True, **more
        )

    def _draw(self, study: optuna.Study) -> Candidate:
        kinds, known = optuna.distributions, distributions(self._space)
        optuna_trial = study.ask()

        def ask(name: str) -> OptunaValue:
            distribution = known[name]
            if isinstance(distribution, kinds.CategoricalDistribution):
                text: str = optuna_trial.suggest_categorical(name, distribution.choices)
                return text
            assert isinstance(distribution, kinds.IntDistribution)
            low, high = distribution.low, distribution.high
            number: int = optuna_trial.suggest_int(
                name, low, high, step=distribution.step, log=distribution.log
            )
            return number

        return suggest(self._space, ask)
