"""Spaces, synthetic goodputs and searches over them, for the tests of Model Analyzer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from builders.candidates import fields_of
from builders.spaces import BATCH, DELAY, INSTANCES, PREFERRED, space_of, spec_of

from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.searcher import Searcher
from tuner.search.strategies.model_analyzer import ModelAnalyzerStrategy
from tuner.search.strategy import Proposal
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import ModelAnalyzerMode

HILL: dict[str, Any] = {INSTANCES: {"int": [1, 5]}, BATCH: {"choice": [1, 2, 4, 8, 16, 32, 64]}}
FULL: dict[str, Any] = {
    INSTANCES: {"int": [1, 3]},
    BATCH: {"choice": [4, 8, 16]},
    DELAY: {"int": [100, 10_000], "log": True, "or": 0},
    PREFERRED: {"subsets": [4, 8], "at_most": 1, "or": "unset"},
}
GRID: dict[str, Any] = {
    INSTANCES: {"int": [1, 3]},
    BATCH: {"choice": [4, 8]},
    DELAY: {"choice": [0, 100, 1000]},
    PREFERRED: {"subsets": [2, 4], "at_most": 1, "or": "unset"},
}

Goodput = Callable[[Candidate], float | None]


def number(candidate: Candidate, path: str) -> int:
    value = fields_of(candidate).get(path)
    return value if isinstance(value, int) else 0


def hill(candidate: Candidate) -> float:
    """Best, 1000, at 4 instances and batches of 32."""
    octaves = math.log2(number(candidate, BATCH) / 32)
    return 1000 * math.exp(-0.1 * (number(candidate, INSTANCES) - 4) ** 2 - 0.2 * octaves**2)


def strategy(
    given: dict[str, Any], mode: ModelAnalyzerMode, *, seed: int = 0, trials: int = 40, **more: Any
) -> tuple[Space, ModelAnalyzerStrategy]:
    search = {"strategy": "model-analyzer", "mode": mode.value, "seed": seed}
    spec = spec_of(given, search=search, budget={"trials": trials}, **more)
    space = space_of(given)
    return space, ModelAnalyzerStrategy(space, spec)


def trial(number: int, candidate: Candidate, value: float | None, violation: float = 0.0) -> Trial:
    """None for a value is a failed trial."""
    if value is None:
        return Trial(number, candidate, TrialState.FAILED, reason="synthetic failure")
    score = Score(value, violation == 0, violation, best_point=None)
    return Trial(number, candidate, TrialState.MEASURED, score=score)


def run(
    space: Space,
    chosen: ModelAnalyzerStrategy,
    goodput: Goodput,
    violation: Callable[[Candidate], float] = lambda _: 0.0,
    trials: int = 100,
    history: Sequence[Trial] = (),
) -> list[Trial]:
    """To the end of NVIDIA's search, or to ``trials``."""
    searcher = Searcher(space, chosen, history)
    while len(searcher.history) < trials:
        proposal = searcher.next()
        if not isinstance(proposal, Proposal):
            break
        candidate = proposal.candidate
        searcher.tell(
            trial(len(searcher.history), candidate, goodput(candidate), violation(candidate))
        )
    return searcher.history


def best(trials: Sequence[Trial]) -> Trial:
    feasible = [t for t in trials if t.score is not None and t.score.feasible]
    return max(feasible, key=lambda t: t.score.value if t.score else 0.0)
