"""Model Analyzer's search as a strategy, with the server, load, windows and SLOs of `tune`."""

from __future__ import annotations

from collections.abc import Sequence, Set

from tuner.model_analyzer.generators import SearchResult
from tuner.model_analyzer.search import ModelAnalyzerSearch
from tuner.score.trial import Trial
from tuner.search.optuna_trial import observe, quiet_optuna
from tuner.search.strategy import InOrder, Proposal
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.slo import Goal


class ModelAnalyzerStrategy(InOrder):
    """Proposes what Model Analyzer's search does, which may end before the space is exhausted."""

    at_once = 1

    def __init__(self, space: Space, spec: Spec) -> None:
        self._space = space
        self._goal = spec.objective.goal
        self._search = ModelAnalyzerSearch(
            space,
            spec.search.mode,
            spec.search.seed,
            spec.budget.trials,
            maximise=self._goal is Goal.MAXIMIZE_GOODPUT,
        )

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | None:
        measured = {self._space.canonical(t.candidate).key: self._result_of(t) for t in history}
        with quiet_optuna():
            requested = self._search.next(measured)
        if requested is None or requested.candidate.key in taken:
            return None
        return Proposal(requested.candidate, requested.repeated)

    def _result_of(self, trial: Trial) -> SearchResult | None:
        seen = observe(trial, self._goal)
        return None if seen.value is None else SearchResult(seen.value, seen.violation)
