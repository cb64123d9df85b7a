from __future__ import annotations

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
    space_of,
    spec_of,
)

from tuner.errors import NothingToSearchError, SpecError
from tuner.space.build import build_space


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


def test_two_words_for_one_config_are_refused() -> None:
    with pytest.raises(SpecError, match="unset and 0 are the same to Triton"):
        space_of({DELAY: {"choice": ["unset", 0, 100]}})


def test_one_field_under_two_names_is_refused() -> None:
    with pytest.raises(SpecError, match="the same field as"):
        space_of(
            {"parameters.a": {"choice": [1, 2]}, 'parameters["a"]': {"choice": [1, 2]}},
        )


def test_a_model_with_another_scheduler_gets_no_dynamic_batcher() -> None:
    with pytest.raises(SpecError, match="sequence_batching"):
        space_of({DELAY: {"int": [1, 5]}}, BATCHING + "sequence_batching { }")


@pytest.mark.parametrize(
    ("path", "given", "what"),
    [
        ("sequence_batching.oldest.max_candidate_sequences", {"int": [1, 5]}, "takes sequences"),
        ("sequence_batching.max_sequence_idle_microseconds", {"int": [1, 9]}, "takes sequences"),
        ("sequence_batching", {"choice": [False, True]}, "takes sequences"),
        ("model_transaction_policy.decoupled", {"choice": [False, True]}, "is decoupled"),
    ],
)
def test_a_space_cannot_make_the_model_one_that_no_search_is_for(
    path: str, given: dict[str, list[int]], what: str
) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        space_of({path: given}, BATCHING)
    assert caught.value.message.startswith(f"space.{path}: cannot be searched")
    assert "take it out of the space" in caught.value.message


def test_a_model_that_does_not_batch_has_nothing_to_delay() -> None:
    with pytest.raises(SpecError, match="max_batch_size is 0"):
        space_of({DELAY: {"int": [1, 5]}}, 'name: "m"')


def test_a_cache_of_another_kind_has_no_size_to_search() -> None:
    with pytest.raises(SpecError, match="not a local cache"):
        space_of(
            {CACHE: {"choice": [False, "1MiB"]}},
            server={"args": ["--cache-config=redis,host=h"]},
        )


def test_a_space_of_only_the_current_config_is_nothing_to_search() -> None:
    with pytest.raises(NothingToSearchError, match="nothing but the current config"):
        space_of({BATCH: {"choice": [16]}})


def test_a_space_that_triton_refuses_is_nothing_to_search() -> None:
    decoupled = BATCHING + "model_transaction_policy { decoupled: true }"
    with pytest.raises(NothingToSearchError, match="response cache does not work"):
        space_of({CACHE: {"choice": ["1MiB"]}}, decoupled)


def test_one_other_config_is_something_to_search() -> None:
    assert space_of({BATCH: {"choice": [8]}}).size().count == 1


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
