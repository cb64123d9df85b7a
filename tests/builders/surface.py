"""A synthetic model to search: goodput by a formula, known optimum, nothing measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from builders.reasons import said
from builders.spaces import BATCH, BATCHER, DELAY, INSTANCES, PREFERRED, space_of, spec_of

from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.strategy import Proposal
from tuner.search.strategy import Strategy as StrategyProtocol
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.space import Space
from tuner.spec.model import StrategyName

SURFACE: dict[str, Any] = {
    INSTANCES: {"int": [1, 6]},
    BATCH: {"choice": [4, 8, 16, 32]},
    PREFERRED: {"subsets": [4, 8, 16, 32], "at_most": 2, "or": "unset"},
    DELAY: {"int": [50, 20_000], "log": True, "or": 0},
}
#: 13 candidates.
TINY: dict[str, Any] = {
    INSTANCES: {"int": [1, 2]},
    BATCH: {"choice": [1, 8]},
    PREFERRED: {"subsets": [2, 4], "at_most": 1, "or": "unset"},
    "parameters.threads": {"choice": [1, 2]},
}
CACHED: dict[str, Any] = {
    INSTANCES: {"int": [1, 6]},
    "response_cache.size": {"choice": [False, "1MiB", "64MiB"]},
    "parameters.threads": {"int": [1, 6]},
}


#: The steps of an ensemble: a step that takes smaller batches than the ensemble is refused.
COMPOSED: dict[str, Any] = {
    "models": {
        "one": {"space": SURFACE},
        "two": {"space": {INSTANCES: {"int": [1, 6]}, BATCH: {"choice": [2, 4, 8]}}},
        "e": {},
    },
    "streams": {"asked": {"model": "e"}},
}
#: 24 candidates, a third of them refused.
COMPOSED_TINY: dict[str, Any] = {
    "models": {
        "one": {"space": {INSTANCES: {"int": [1, 2]}, BATCH: {"choice": [2, 4, 8]}}},
        "two": {"space": {INSTANCES: {"int": [1, 2]}, "parameters.threads": {"choice": [1, 2]}}},
        "e": {},
    },
    "streams": {"asked": {"model": "e"}},
}
#: Two models that share a server and its cache.
COMPOSED_CACHED: dict[str, Any] = {
    "models": {
        "one": {"space": {INSTANCES: {"int": [1, 6]}}},
        "two": {"space": {INSTANCES: {"int": [1, 6]}, BATCH: {"choice": [4, 8]}}},
    },
    "server": {"space": {"response_cache.size": {"choice": [False, "1MiB", "64MiB"]}}},
    "streams": {"a": {"model": "one", "share": "75%"}, "b": {"model": "two", "share": "25%"}},
}


def synthetic_goodput(candidate: Candidate) -> float:
    """Best, 1000, at 3 instances, batches of 16, a delay of 2 ms, no preferred size.

    Of several models that of the slowest.
    """
    return min(map(_goodput, candidate.models.values()))


def _goodput(fields: Mapping[str, FieldValue]) -> float:
    instances, batch = fields.get(INSTANCES) or 1, fields.get(BATCH) or 16
    assert isinstance(instances, int)
    assert isinstance(batch, int)
    delay, preferred = fields.get(DELAY) or 0, fields.get(PREFERRED)
    assert isinstance(delay, int)
    value = 1000.0 * math.exp(-0.15 * (instances - 3) ** 2 - 0.3 * math.log2(batch / 16) ** 2)
    value *= math.exp(-0.15 * math.log(max(delay, 20) / 2000) ** 2)
    if preferred is not None:
        value *= 0.8
    return value if fields.get(BATCHER) else value * 0.3


#: What a config answers at the load at which it misses the SLO, over what it would serve in time:
#: the bound that a trial without a passing load is told with. It tempts a search.
TEMPTING = 4.0


def overshoot(candidate: Candidate) -> float:
    """A long delay with many instances misses the SLO; above 0 it is missed."""
    return max(map(_overshoot, candidate.models.values()))


def _overshoot(fields: Mapping[str, FieldValue]) -> float:
    delay, instances = fields.get(DELAY) or 0, fields.get(INSTANCES) or 1
    assert isinstance(delay, int)
    assert isinstance(instances, int)
    return (delay + 1000 * instances) / 12_000 - 1.0


def feasible(candidate: Candidate) -> bool:
    return overshoot(candidate) <= 0.0


def synthetic_trial(number: int, candidate: Candidate, history: Sequence[Trial]) -> Trial:
    """As the pipeline makes them: every 7th fails, losers are pruned, some miss the SLO."""
    if number % 7 == 6:
        return Trial(number, candidate, TrialState.FAILED, reason=said("synthetic failure"))
    value = synthetic_goodput(candidate)
    if not feasible(candidate):
        missed = overshoot(candidate)
        score = Score(TEMPTING * value, feasible=False, violation=missed, best_point=None)
        return Trial(number, candidate, TrialState.MEASURED, score=score)
    to_beat = max((t.score.value for t in history if t.score and t.score.feasible), default=0.0)
    if value < to_beat:
        lost_by = to_beat / value - 1
        score = Score(to_beat, feasible=False, violation=lost_by, best_point=None)
        return Trial(number, candidate, TrialState.PRUNED, score=score)
    score = Score(value, feasible=True, violation=0.0, best_point=None)
    return Trial(number, candidate, TrialState.MEASURED, score=score)


def searched(searcher: Searcher, trials: int) -> list[Trial]:
    """Runs a search on the surface to ``trials`` trials, or to its end."""
    while len(searcher.history) < trials:
        proposal = searcher.next()
        if not isinstance(proposal, Proposal):
            break
        searcher.start(proposal)
        trial = synthetic_trial(len(searcher.history), proposal.candidate, searcher.history)
        searcher.tell(trial)
    return searcher.history


def strategy(
    name: StrategyName,
    space: dict[str, Any],
    seed: int = 0,
    trials: int = 40,
    min_gain: float = 0.0,
    **search: Any,
) -> tuple[Space, StrategyProtocol]:
    """One that ends where less than ``min_gain`` can be expected of another trial."""
    search = {"seed": seed, "strategy": name.value, **search}
    confirm = {"min_gain": min_gain}
    spec = spec_of(space, search=search, budget={"trials": trials}, confirm=confirm)
    built = space_of(space)
    return built, STRATEGIES[name](built, spec)
