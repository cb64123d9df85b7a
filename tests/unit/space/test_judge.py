"""A config that breaks a rule by itself is told at once, whatever the size of the space."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from builders.serving import served_one
from builders.spaces import BATCH, BATCHING, DELAY, PREFERRED, USUAL, space_of, spec_of

from tuner.errors import SpecError
from tuner.modelconfig.message import parse
from tuner.space.build import build_space, refuse_unmeasurable
from tuner.steps.job import Request, prepare

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
    "takes sequences": "sequence_batching { }",
    "decoupled": "model_transaction_policy { decoupled: true }",
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
    one_answer = ordinary + " model_transaction_policy { decoupled: false }"
    refuse_unmeasurable("m", parse(one_answer))
    with pytest.raises(SpecError, match="decoupled"):
        refuse_unmeasurable("m", parse(one_answer.replace("false", "true")))
