"""What every search strategy must do, whatever it does inside."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from builders.effort import takes_at_most
from builders.surface import (
    CACHED,
    COMPOSED,
    COMPOSED_CACHED,
    COMPOSED_TINY,
    SURFACE,
    TINY,
    searched,
    strategy,
    synthetic_goodput,
    synthetic_trial,
)

from tuner.score.trial import Trial
from tuner.search.searcher import Searcher
from tuner.search.strategies.features import Features
from tuner.search.strategies.registry import STRATEGIES
from tuner.space.candidate import Candidate
from tuner.spec.model import StrategyName

#: Each choice of these takes a part of a second.
SLOW = {StrategyName.GP, StrategyName.MODEL_ANALYZER}
#: NVIDIA's searches end when they have seen enough, and its quick one has no chance in it.
ENDS_BY_ITSELF = {StrategyName.MODEL_ANALYZER}


def parametrized(*strategies: StrategyName) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "name",
        [pytest.param(s, id=s.value, marks=[pytest.mark.long] * (s in SLOW)) for s in strategies],
    )


every_strategy = parametrized(*STRATEGIES)
every_exhaustive_strategy = parametrized(*(s for s in STRATEGIES if s not in ENDS_BY_ITSELF))

#: Of one model, of several; of those a cache is searched for.
SPACES = {
    "surface": SURFACE,
    "cached": CACHED,
    "composed": COMPOSED,
    "composed cached": COMPOSED_CACHED,
}
every_space = pytest.mark.parametrize("label", SPACES)
every_surface = pytest.mark.parametrize("label", ["surface", "composed"])


def keys(trials: Sequence[Trial]) -> list[str]:
    return [t.candidate.key for t in trials]


@cache
def _searcher(name: StrategyName, label: str, seed: int) -> Searcher:
    return Searcher(*strategy(name, SPACES[label], seed))


def first_trials(name: StrategyName, label: str, count: int, seed: int = 0) -> list[Trial]:
    """Of a search that is made once for all tests, since some take seconds; fewer if it ends."""
    return list(searched(_searcher(name, label, seed), count))[:count]


def test_every_strategy_of_the_spec_exists() -> None:
    assert set(STRATEGIES) == set(StrategyName)


@every_strategy
@every_space
def test_strategy_proposes_only_loadable_candidates_of_the_space_and_none_twice(
    name: StrategyName, label: str
) -> None:
    space, chosen = strategy(name, SPACES[label])
    trials = first_trials(name, label, 36)
    assert len(trials) == 36 or name in ENDS_BY_ITSELF
    assert len(set(keys(trials))) == len(trials) > 3
    assert trials[1 if chosen.designs else 0].candidate == space.current
    for trial in (t for t in trials if t.candidate != space.current):
        assert space.contains(trial.candidate)
        assert space.violations(trial.candidate) == []


@every_exhaustive_strategy
@pytest.mark.parametrize("given", [TINY, COMPOSED_TINY], ids=["tiny", "composed"])
def test_strategy_ends_when_the_space_is_exhausted(
    name: StrategyName, given: dict[str, Any]
) -> None:
    space, chosen = strategy(name, given)
    trials = searched(Searcher(space, chosen), 1000)
    assert {t.candidate for t in trials} == {space.current, *space.enumerate()}
    assert len(trials) == len({space.current, *space.enumerate()})


@every_strategy
@every_surface
def test_the_same_seed_proposes_the_same(name: StrategyName, label: str) -> None:
    again = searched(Searcher(*strategy(name, SPACES[label])), 20)
    assert keys(first_trials(name, label, 20)) == keys(again)


@every_exhaustive_strategy
@every_surface
def test_another_seed_proposes_something_else(name: StrategyName, label: str) -> None:
    one, other = (keys(first_trials(name, label, 9, seed)) for seed in (1, 2))
    assert one != other


@every_strategy
@pytest.mark.parametrize("label", ["surface", "cached", "composed cached"])
@pytest.mark.parametrize("stopped_after", [1, 5, 11])
def test_a_resumed_search_goes_on_as_if_it_had_never_stopped(
    name: StrategyName, label: str, stopped_after: int
) -> None:
    straight = first_trials(name, label, 14)
    stored = [Trial.from_json(t.to_json()) for t in straight[:stopped_after]]
    resumed = searched(Searcher(*strategy(name, SPACES[label]), history=stored), 14)
    assert keys(resumed) == keys(straight)


@every_strategy
@pytest.mark.parametrize("label", ["surface", "cached", "composed cached"])
def test_strategy_proposes_the_same_however_the_machine_rounds(
    name: StrategyName, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linear algebra may add in another order each time, so that equals differ a little."""
    exact = first_trials(name, label, 10)
    rng, squares = np.random.default_rng(1), Features.squares

    def rounded(features: Features, *given: Sequence[Candidate]) -> npt.NDArray[np.float64]:
        differences = squares(features, *given)
        off: npt.NDArray[np.float64] = differences * (
            1.0 + 1e-13 * rng.standard_normal(differences.shape)
        )
        return off

    monkeypatch.setattr(Features, "squares", rounded)
    again = searched(Searcher(*strategy(name, SPACES[label])), 10)
    assert keys(again) == keys(exact)


@every_strategy
@every_surface
def test_strategy_repeats_its_proposal_until_a_new_trial(name: StrategyName, label: str) -> None:
    _, chosen = strategy(name, SPACES[label])
    history = first_trials(name, label, 6)
    taken = {t.candidate.key for t in history}
    first, again = (chosen.propose(6, history, taken) for _ in range(2))
    assert first is not None or name in ENDS_BY_ITSELF
    assert first == again


@every_strategy
@every_surface
def test_strategy_chooses_soon_after_500_trials(name: StrategyName, label: str) -> None:
    space, _ = strategy(name, SPACES[label])
    rng = random.Random(1)
    drawn = {c for c in (space.sample(rng) for _ in range(1500)) if c is not None}
    history: list[Trial] = []
    for candidate in sorted(drawn, key=lambda c: c.key)[:500]:
        history.append(synthetic_trial(len(history), candidate, history))
    assert len(history) == 500

    def chosen() -> None:
        _, fresh = strategy(name, SPACES[label])
        assert fresh.propose(500, history, {t.candidate.key for t in history}) is not None

    assert takes_at_most(200, chosen)


def test_tpe_finds_more_than_random_search() -> None:
    def best(name: StrategyName, seed: int) -> float:
        trials = searched(Searcher(*strategy(name, SURFACE, seed)), 30)
        return max(t.score.value for t in trials if t.score and t.score.feasible)

    tpe, chance = (
        statistics.median(best(name, seed) for seed in range(7))
        for name in (StrategyName.TPE, StrategyName.RANDOM)
    )
    assert tpe > 1.05 * chance


def test_the_surface_of_these_tests_has_its_optimum_inside() -> None:
    space, _ = strategy(StrategyName.GRID, SURFACE)
    best = max(space.coarse(20).enumerate(), key=synthetic_goodput)
    assert synthetic_goodput(best) > 950
    assert synthetic_trial(0, best, []).score is not None
