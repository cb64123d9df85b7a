from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import fields_of
from builders.serving import served_one
from builders.spaces import (
    BATCH,
    BATCHER,
    BATCHING,
    CACHE,
    DELAY,
    PREFERRED,
    USUAL,
    space_of,
    spec_of,
)

from tuner.bench.job import Request, prepare
from tuner.errors import NothingToSearchError, SpecError
from tuner.modelconfig.message import parse
from tuner.search.optuna_trial import params
from tuner.search.strategies.features import Features
from tuner.space.build import build_space, refuse_empty, refuse_unmeasurable
from tuner.space.candidate import Candidate


def test_every_mistake_is_reported_with_its_place() -> None:
    spec = spec_of(
        {
            "max_batch_sizes": {"choice": [8, 16]},
            "parameters.mode": {"choice": ["fast", "slow"]},
            DELAY: {"choice": [True, 5]},
        }
    )
    with pytest.raises(SpecError) as caught:
        build_space(spec, served_one(BATCHING), {"m": {"max_batch_sizes": "s.yaml:9:3"}})
    lines = caught.value.message.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("s.yaml:9:3: space.max_batch_sizes: ")
    assert "max_batch_size" in lines[0].split("(")[1]
    assert lines[1].startswith(f"space.{DELAY}: ")


TWICE = {"parameters.a": {"choice": [1, 2]}, 'parameters["a"]': {"choice": [1, 2]}}


@pytest.mark.parametrize(
    ("space", "config", "args", "what"),
    [
        ({DELAY: {"choice": ["unset", 0, 100]}}, BATCHING, (), "unset and 0 are the same"),
        (TWICE, BATCHING, (), "the same field as"),
        ({DELAY: {"int": [1, 5]}}, BATCHING + "sequence_batching { }", (), "sequence_batching"),
        ({DELAY: {"int": [1, 5]}}, 'name: "m"', (), "max_batch_size is 0"),
        (
            {CACHE: {"choice": [False, "1MiB"]}},
            BATCHING,
            ("--cache-config=redis,host=h",),
            "not a local cache",
        ),
    ],
)
def test_what_this_model_cannot_be_given_is_refused(
    space: dict[str, dict[str, Any]], config: str, args: tuple[str, ...], what: str
) -> None:
    with pytest.raises(SpecError, match=what):
        space_of(space, config, server={"args": list(args)})


@pytest.mark.parametrize(
    ("path", "given", "what"),
    [
        ("sequence_batching.oldest.max_candidate_sequences", {"int": [1, 5]}, "takes sequences"),
        ("sequence_batching.max_sequence_idle_microseconds", {"int": [1, 9]}, "takes sequences"),
        ("sequence_batching", {"choice": [False, True]}, "takes sequences"),
        (
            "model_transaction_policy.decoupled",
            {"choice": [False, True]},
            "whether a model is decoupled is up to its code",
        ),
    ],
)
def test_a_space_cannot_make_the_model_one_that_no_search_is_for(
    path: str, given: dict[str, list[int]], what: str
) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        space_of({path: given}, BATCHING)
    assert caught.value.message.startswith(f"space.{path}: cannot be searched")
    assert "take it out of the space" in caught.value.message


def test_a_space_of_only_the_current_config_is_nothing_to_search() -> None:
    with pytest.raises(NothingToSearchError, match="nothing but the current config"):
        refuse_empty(space_of({BATCH: {"choice": [16]}}))


def test_a_space_that_triton_refuses_is_nothing_to_search() -> None:
    decoupled = BATCHING + "model_transaction_policy { decoupled: true }"
    with pytest.raises(NothingToSearchError, match="response cache does not work"):
        refuse_empty(space_of({CACHE: {"choice": ["1MiB"]}}, decoupled))


def test_one_other_config_is_something_to_search() -> None:
    assert space_of({BATCH: {"choice": [8]}}, BATCHING + "dynamic_batching { }").size().count == 1


def test_batch_sizes_alone_are_nothing_to_search_where_nothing_is_batched() -> None:
    with pytest.raises(NothingToSearchError, match="whatever max_batch_size is") as caught:
        refuse_empty(space_of({BATCH: {"choice": [4, 8]}}))
    assert "add dynamic_batching" in caught.value.hint


def test_words_become_values_of_the_field() -> None:
    space = space_of(
        {
            BATCHER: {"choice": [False, True]},
            PREFERRED: {"choice": ["unset", 8]},
            "response_cache.enable": {"choice": [False, True]},
            "instance_group[kind=KIND_CPU].count": {"choice": ["unset", 2]},
        },
        server={"args": ["--cache-config=local,size=1048576"]},
    )
    values = {p.path: tuple(p) for p in space.parameters}
    assert values[BATCHER] == (None, True)
    assert values[PREFERRED] == (None, (8,))
    assert values["response_cache.enable"] == (False, True)
    assert values["instance_group[kind=KIND_CPU].count"] == (None, 2)


ENGINE = (
    'name: "m" platform: "tensorrt_plan" max_batch_size: 8 '
    "instance_group { kind: KIND_GPU profile: %s }"
)


def test_a_list_of_text_is_one_value_of_a_field_that_is_a_list() -> None:
    profiles = {"instance_group.profile": {"choice": [["0"], ["0", "1"], "unset"]}}
    space = space_of(profiles, ENGINE % '"0"')
    (tried,) = space.parameters
    assert [*tried] == [("0",), ("0", "1"), None]
    assert dict(fields_of(space.current)) == {"instance_group.profile": ("0",)}
    written = [space.configs(c)["m"].instance_group[0].profile for c in space.enumerate()]
    assert [[*profile] for profile in written] == [["0"], ["0", "1"], []]
    assert all(params(space, c) for c in space.enumerate())
    assert Candidate.from_json(space.current.to_json()) == space.current


def test_lists_of_text_are_apart_for_the_search_whatever_they_hold() -> None:
    profiles = {"instance_group.profile": {"choice": [["0"], ["1"], ["0", "1"]]}}
    space = space_of(profiles, ENGINE % '"0"')
    (apart,) = Features(space).squares([*space.enumerate()], [*space.enumerate()])
    assert (apart > 0).sum() == 6


@pytest.mark.parametrize(
    ("path", "values", "why"),
    [
        ("instance_group.profile", [[0], [0, 1]], "is a list of texts; 0 does not fit"),
        (BATCH, [[8, 16]], "is a whole number"),
        (PREFERRED, [["4", "8"]], "is a list of whole numbers; '4' does not fit"),
    ],
)
def test_a_list_that_the_field_cannot_hold_is_refused(
    path: str, values: list[Any], why: str
) -> None:
    with pytest.raises(SpecError, match=why):
        space_of({path: {"choice": values}}, ENGINE % '"0"')


def test_what_others_depend_on_comes_first() -> None:
    space = space_of(
        {
            DELAY: {"int": [1, 5]},
            BATCHER: {"choice": [False, True]},
            BATCH: {"choice": [1, 8]},
            CACHE: {"choice": [False, "1MiB"]},
        }
    )
    assert space.paths == (CACHE, BATCH, BATCHER, DELAY)


def test_a_parameter_of_the_model_is_read_as_the_number_it_stands_for() -> None:
    config = BATCHING + 'parameters { key: "threads" value { string_value: "2" } }'
    space = space_of({"parameters.threads": {"choice": [1, 2, 4]}}, config)
    assert dict(fields_of(space.current)) == {"parameters.threads": 2}
    assert space.contains(space.current)


ZERO_DIMS = BATCHING + '\ninput [{ name: "x" data_type: TYPE_FP32\n  dims: [ 0 ] }]'


def test_a_config_that_is_wrong_by_itself_is_told_before_the_space_is_gone_through() -> None:
    large = {**USUAL, "instance_group.count": {"int": [1, 900_000]}}
    began = time.process_time()
    with pytest.raises(SpecError) as error:
        build_space(spec_of(large), served_one(ZERO_DIMS))
    assert time.process_time() - began < 1
    assert error.value.message == "m/config.pbtxt:3:3: input[0].dims: input x has dimension 0"
    assert error.value.hint == "fix the model's config first: -1 is any length"


def test_what_the_space_may_mend_is_no_mistake_of_the_config() -> None:
    too_large = BATCHING + " dynamic_batching { preferred_batch_size: [32] }"
    assert space_of({BATCH: {"choice": [16, 32]}}, too_large).size().count == 1
    assert space_of({PREFERRED: {"choice": ["unset", 8]}}, too_large).size().count == 2


def test_what_the_space_leaves_alone_is_one() -> None:
    too_large = BATCHING + " dynamic_batching { preferred_batch_size: [32] }"
    with pytest.raises(SpecError, match="preferred_batch_size 32 is above max_batch_size 16"):
        space_of({DELAY: {"int": [1, 10_000]}}, too_large)


def test_a_rare_candidate_is_found_in_a_space_too_large_to_go_through() -> None:
    """The first fifty thousand combinations are refused."""
    ordered = BATCHING + " dynamic_batching { priority_levels: 1 default_priority_level: 1 }"
    space = {
        "dynamic_batching.preserve_ordering": {"choice": [True, False]},
        "dynamic_batching.priority_levels": {"choice": [2, 3]},
        DELAY: {"int": [0, 49_999]},
    }
    began = time.process_time()
    assert space_of(space, ordered).size().count == 2 * 2 * 50_000
    assert time.process_time() - began < 3


REFUSED = {
    "language model": 'backend: "vllm"',
}


@pytest.mark.parametrize("what", REFUSED)
def test_they_are_refused_with_a_next_step(what: str) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        refuse_unmeasurable("m", parse(f'name: "m" max_batch_size: 8 {REFUSED[what]}'))
    assert caught.value.hint


@pytest.mark.parametrize("what", REFUSED)
def test_a_spec_written_by_hand_is_refused_before_anything_starts(
    tmp_path: Path, what: str
) -> None:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(f'name: "m" max_batch_size: 8 {REFUSED[what]}')
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: repository\nslo: [p99_latency <= 40ms]\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    with pytest.raises(SpecError, match=what):
        prepare(Request(spec=spec))


def test_other_models_are_not() -> None:
    ordinary = 'name: "m" max_batch_size: 8 dynamic_batching { }'
    refuse_unmeasurable("m", parse(ordinary))
    for decoupled in ("false", "true"):
        policy = f"model_transaction_policy {{ decoupled: {decoupled} }}"
        refuse_unmeasurable("m", parse(f"{ordinary} {policy}"))
