"""NVIDIA's Model Analyzer as a strategy: its search, our server, load, windows and SLOs."""

from __future__ import annotations

from collections.abc import Sequence, Set

from tuner.model_analyzer.generators import Told
from tuner.model_analyzer.search import ModelAnalyzerSearch
from tuner.run.trial import Trial
from tuner.search.observation import observe
from tuner.search.quiet import quiet_optuna
from tuner.search.random_search import draw_new
from tuner.search.strategy import Proposal, chance
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.objective import Goal


class ModelAnalyzerStrategy:
    """Ends when NVIDIA's search does, which may be long before the space is exhausted.

    What was proposed and not yet measured has no result, as a failed trial has none. That happens
    only where several are proposed at once, for the sake of server arguments that this search
    never varies; should it end there, random candidates fill the batch. Before the first trial
    there is one proposal, and no second without the result of that.
    """

    def __init__(self, space: Space, spec: Spec) -> None:
        self._space = space
        self._seed = spec.search.seed
        self._goal = spec.objective.goal
        self._search = ModelAnalyzerSearch(
            space,
            spec.search.mode,
            spec.search.seed,
            spec.budget.trials,
            maximise=self._goal is Goal.MAXIMIZE_GOODPUT,
        )

    def propose(self, number: int, history: Sequence[Trial], taken: Set[str]) -> Proposal | None:
        measured = {self._space.canonical(t.candidate).key: self._told(t) for t in history}
        pending = dict.fromkeys(taken - measured.keys()) if history else {}
        with quiet_optuna():
            asked = self._search.next({**pending, **measured})
        if asked is not None and asked.candidate.key not in taken:
            return Proposal(asked.candidate, asked.repeated)
        if self._space.restarts and pending:
            return draw_new(self._space, chance(self._seed, number), taken)
        return None

    def _told(self, trial: Trial) -> Told | None:
        seen = observe(trial, self._goal)
        return None if seen.value is None else Told(seen.value, seen.violation)
