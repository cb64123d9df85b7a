"""The space of several models on one server: a product, and the rules that go across."""

from __future__ import annotations

import random
import re
from itertools import islice
from typing import Any

import pytest
from builders.candidates import values_of
from builders.effort import takes_at_most
from builders.spaces import (
    BATCH,
    BATCHER,
    CACHE,
    DELAY,
    INSTANCES,
    USUAL,
    space_of,
    spec_of,
)

from tuner.errors import SpecError
from tuner.search.optuna_trial import distributions, params, suggest
from tuner.space.build import build_space
from tuner.space.candidate import Candidate
from tuner.space.parameters import Knob

ENABLE = "response_cache.enable"


def models(one: dict[str, Any], two: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The ensemble `e`, which takes batches of four, over the two."""
    spaces = {
        label: {"space": space} if space else {} for label, space in (("one", one), ("two", two))
    }
    return {"models": {**spaces, "e": {}}, "streams": {"e": {"model": "e"}}, **more}


SMALL = models(
    {INSTANCES: {"int": [1, 2]}, BATCH: {"choice": [2, 4, 8]}},
    {BATCH: {"choice": [1, 4]}, DELAY: {"int": [1, 2], "or": 0}},
)


def test_each_candidate_of_several_models_is_listed_once_and_one_by_one_loadable() -> None:
    space = space_of(SMALL)
    candidates = list(space.enumerate())
    assert len(candidates) == len({c.key for c in candidates}) == space.size().count
    for candidate in candidates:
        assert space.contains(candidate)
        assert space.canonical(candidate) == candidate
        assert space.candidate(space.values(candidate)) == candidate
        assert space.violations(candidate) == []


def test_a_step_that_takes_smaller_batches_than_the_ensemble_is_no_candidate() -> None:
    space = space_of(SMALL)
    sizes = {(c.of("one")[BATCH], c.of("two")[BATCH]) for c in space.enumerate()}
    assert sizes == {(4, 4), (8, 4)}
    assert {c.of("one")[BATCH] for c in filter(None, space.steps())} == {2, 4, 8}
    refused = space.candidate(
        values_of({INSTANCES: 1, BATCH: 2}, "one") | values_of({BATCH: 4, DELAY: 0}, "two")
    )
    assert space.contains(refused)
    (violation,) = space.violations(refused)
    assert re.findall(r"\d+|\bone\b", violation.message) == ["4", "one", "2"]
    rng = random.Random(1)
    for known in (None, next(space.enumerate())):
        assert {space.sample(rng, known) for _ in range(400)} == {*space.enumerate()}


def test_a_product_too_large_to_list_is_counted() -> None:
    many = {**USUAL, BATCH: {"int": [8, 135]}}

    def counted() -> None:
        size = space_of(models(many, many)).size()
        assert size.count == space_of(many).size().count ** 2
        assert not size.exact

    assert takes_at_most(200, counted)


def test_first_config_of_several_models_takes_few_steps() -> None:
    """The first values, no batcher and a small batch, are no config of their own."""
    fields = {
        BATCHER: {"choice": [False, True]},
        BATCH: {"choice": [1, 2, 4]},
        INSTANCES: {"int": [1, 500]},
        DELAY: {"int": [50, 10_000], "or": 0},
    }
    streams = {name: {"model": name, "share": "50%"} for name in ("one", "two")}
    space = space_of({"models": {n: {"space": fields} for n in streams}, "streams": streams})
    assert any(islice(space.steps(), 20))


def test_batcher_of_each_model_follows_the_batches_of_that_model() -> None:
    space = space_of(models({DELAY: {"int": [1, 9]}}, {INSTANCES: {"int": [1, 2]}}))
    assert space.current.models == {"one": {BATCHER: None}, "two": {INSTANCES: 1}}
    candidate = space.candidate(values_of({DELAY: 3}, "one") | values_of({INSTANCES: 2}, "two"))
    assert candidate.models == {"one": {BATCHER: True, DELAY: 3}, "two": {INSTANCES: 2}}


def test_called_models_use_the_searched_cache() -> None:
    cached = {"space": {CACHE: {"choice": [False, "1MiB"]}}}
    space = space_of(models({INSTANCES: {"int": [1, 2]}}, {}, server=cached))
    assert space.restarts
    on, off = (next(c for c in space.enumerate() if c.cache_bytes == n) for n in (1 << 20, None))
    assert on.models == {"one": {INSTANCES: 1}, "e": {ENABLE: True}}
    assert off.models == {"one": {INSTANCES: 1}, "e": {ENABLE: None}}
    assert space.canonical(space.current) == space.current == off


def test_configs_alike_to_triton_are_alike_in_every_model() -> None:
    space = space_of(SMALL)
    spelled = Candidate({Knob("one", DELAY): 0})
    assert not space.alike(space.current, spelled)  # a batcher in `one`
    assert space.alike(space.current, Candidate({Knob("two", INSTANCES): 1}))


def test_optuna_knows_the_same_field_of_two_models_apart() -> None:
    space = space_of(SMALL)
    assert f"one/{BATCH}" in distributions(space)
    assert f"two/{BATCH}" in distributions(space)
    for candidate in space.enumerate():
        assert suggest(space, params(space, candidate).__getitem__) == candidate


def test_mistake_is_reported_with_its_model() -> None:
    wrong = models({"max_batch_sizes": {"choice": [1, 2]}}, {INSTANCES: {"choice": ["many"]}})
    spec = spec_of(wrong)
    served = space_of(SMALL).served
    with pytest.raises(SpecError) as caught:
        build_space(spec, served)
    first, second = caught.value.message.splitlines()
    assert first.startswith("models.one.space.max_batch_sizes: ")
    assert second.startswith(f"models.two.space.{INSTANCES}: ")
