from __future__ import annotations

import random

import optuna
import pytest
from builders.candidates import values_of
from builders.spaces import (
    BATCH,
    BATCHER,
    BATCHING,
    CACHE,
    DELAY,
    INSTANCES,
    PREFERRED,
    USUAL,
    space_of,
)

from tuner.search.optuna_trial import OptunaValue, distributions, params, suggest

#: What Optuna calls them.
COUNT, AFTER, LISTED = f"m/{INSTANCES}", f"m/{DELAY}", f"m/{PREFERRED}"
RICH = {**USUAL, BATCHER: {"choice": [False, True]}, CACHE: {"choice": [False, "1MiB"]}}


def test_optuna_sees_the_names_and_values_of_the_spec() -> None:
    known = distributions(space_of(RICH))
    assert known[COUNT] == optuna.distributions.IntDistribution(1, 4)
    assert known[AFTER] == optuna.distributions.IntDistribution(50, 10_000, log=True)
    assert known[f"{AFTER}.choice"] == optuna.distributions.CategoricalDistribution(["0", "range"])
    assert known[CACHE] == optuna.distributions.CategoricalDistribution(["unset", "1048576"])
    choices = ["unset", "4", "8", "16", "4,8", "4,16", "8,16"]
    assert known[LISTED] == optuna.distributions.CategoricalDistribution(choices)


def test_params_of_a_candidate_suggest_the_same_candidate() -> None:
    space = space_of(RICH)
    rng = random.Random(5)
    for _ in range(200):
        candidate = space.sample(rng)
        assert candidate is not None
        recorded = params(space, candidate)
        assert recorded.keys() <= distributions(space).keys()
        assert suggest(space, recorded.__getitem__) == candidate


def test_parameters_without_meaning_are_not_suggested() -> None:
    space = space_of({BATCHER: {"choice": [False, True]}, DELAY: {"int": [1, 5], "or": 0}})
    names: list[str] = []

    def ask(name: str) -> OptunaValue:
        names.append(name)
        return {f"m/{BATCHER}": "unset", f"{AFTER}.choice": "0"}[name]

    suggest(space, ask)
    assert names == [f"m/{BATCHER}"]


def test_a_special_value_is_chosen_before_the_range() -> None:
    space = space_of({DELAY: {"int": [1, 5], "or": 0}})
    assert params(space, space.candidate(values_of({DELAY: 0}))) == {f"{AFTER}.choice": "0"}
    in_range = {f"{AFTER}.choice": "range", AFTER: 3}
    assert params(space, space.candidate(values_of({DELAY: 3}))) == in_range


@pytest.mark.parametrize("config", ["", "dynamic_batching { preferred_batch_size: 2 }"])
def test_a_candidate_outside_the_space_has_no_params(config: str) -> None:
    space = space_of(USUAL, BATCHING + config)
    assert params(space, space.current) == {}


def test_the_current_config_has_the_params_of_its_equal() -> None:
    space = space_of(USUAL, BATCHING + "dynamic_batching { preferred_batch_size: 16 }")
    assert params(space, space.current)[LISTED] == "unset"
    assert params(space, space.current)[f"m/{BATCH}"] == "16"
