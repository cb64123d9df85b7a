from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.candidates import fields_of
from builders.effort import takes_at_most
from builders.messages_spaces import ENGINE, ZERO_DIMS
from builders.serving import served_one
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
    spec_of,
)

from tuner.errors import SpecError
from tuner.modelconfig.message import parse
from tuner.prepare.job import Request, prepare
from tuner.search.optuna_trial import params
from tuner.search.strategies.features import Features
from tuner.space.build import build_space, never_tried, refuse_unmeasurable
from tuner.space.candidate import Candidate


def test_one_other_config_is_something_to_search() -> None:
    assert space_of({BATCH: {"choice": [8]}}, BATCHING + "dynamic_batching { }").size().count == 1


def test_values_that_are_never_tried_are_known_without_walking_the_space() -> None:
    space = space_of({**USUAL, BATCH: {"choice": [8, 16]}, INSTANCES: {"int": [1, 500]}})

    def known() -> None:
        assert [*never_tried(space)] == []

    assert takes_at_most(200, known)


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


def test_parameters_that_others_depend_on_come_first() -> None:
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


def test_invalid_current_config_is_reported_before_the_space_is_enumerated() -> None:
    large = {**USUAL, "instance_group.count": {"int": [1, 900_000]}}

    def refused() -> None:
        with pytest.raises(SpecError) as error:
            build_space(spec_of(large), served_one(ZERO_DIMS))
        assert error.value.message.startswith("m/config.pbtxt:3:3: input[0].dims: ")

    assert takes_at_most(100, refused)


def test_mistake_that_the_space_can_fix_is_no_mistake_of_the_config() -> None:
    too_large = BATCHING + " dynamic_batching { preferred_batch_size: [32] }"
    assert space_of({BATCH: {"choice": [16, 32]}}, too_large).size().count == 1
    assert space_of({PREFERRED: {"choice": ["unset", 8]}}, too_large).size().count == 2


def test_rare_candidate_is_sampled_from_a_space_too_large_to_enumerate() -> None:
    """The first fifty thousand combinations are refused."""
    ordered = BATCHING + " dynamic_batching { priority_levels: 1 default_priority_level: 1 }"
    space = {
        "dynamic_batching.preserve_ordering": {"choice": [True, False]},
        "dynamic_batching.priority_levels": {"choice": [2, 3]},
        DELAY: {"int": [0, 49_999]},
    }

    def sampled() -> None:
        assert space_of(space, ordered).size().count == 2 * 2 * 50_000

    assert takes_at_most(300, sampled)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("name", ["m", "n"]),
        ("platform", ["onnxruntime_onnx", "tensorrt_plan"]),
        ("backend", ["python", "onnxruntime"]),
        ("backend", [1, 2]),
        ("default_model_filename", ["model.onnx", "model_fp16.onnx"]),
        ("input[0].dims", [[8], [16]]),
        ("output[name=y].dims", [[8], [16]]),
        ("batch_input[0].kind", ["BATCH_ELEMENT_COUNT", "BATCH_ITEM_SHAPE"]),
        ('cc_model_filenames["7.5"]', ["a", "b"]),
        ("metric_tags.team", ["a", "b"]),
        ("model_operations.op_library_filename", [["a.so"], ["b.so"]]),
        ("model_repository_agents.agents[0].name", ["a", "b"]),
        ("model_transaction_policy.decoupled", [False, True]),
        ("model_warmup[0].batch_size", [1, 8]),
        ("ensemble_scheduling.step[0].model_version", [1, 2]),
        ("sequence_batching.control_input[name=START].control[0].int32_false_true", [[0, 1]]),
        ("sequence_batching.state[0].dims", [[8], [16]]),
    ],
)
def test_what_the_model_is_cannot_be_searched(path: str, values: list[Any]) -> None:
    with pytest.raises(SpecError) as refused:
        space_of({**USUAL, path: {"choice": values}})
    (line,) = refused.value.message.splitlines()
    assert line.startswith(f"models.m.space.{path}: cannot be searched: it says what the model is")
    assert "max_batch_size, dynamic_batching, sequence_batching, instance_group, " in line
    assert "search version_policy.specific.versions" in line


def test_versions_and_parameters_of_any_name_can_be_searched() -> None:
    versions = space_of({"version_policy.specific.versions": {"choice": [[1], [2]]}})
    assert versions.size().count == 2
    assert space_of({'parameters["input.a]b"]': {"choice": ["1", "2"]}}).size().count == 2


REFUSED = {
    "language model": 'backend: "vllm"',
}


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


def test_ordinary_and_decoupled_models_are_not_refused() -> None:
    ordinary = 'name: "m" max_batch_size: 8 dynamic_batching { }'
    refuse_unmeasurable("m", parse(ordinary))
    for decoupled in ("false", "true"):
        policy = f"model_transaction_policy {{ decoupled: {decoupled} }}"
        refuse_unmeasurable("m", parse(f"{ordinary} {policy}"))
