"""A config that breaks a rule by itself is told at once, whatever the size of the space."""

from __future__ import annotations

import time
from functools import partial

import pytest
from unit.space.spaces import BATCH, BATCHING, DELAY, PREFERRED, USUAL, space_of, spec_of

from tuner.errors import SpecError
from tuner.modelconfig.base import Base
from tuner.modelconfig.message import parse
from tuner.modelconfig.tree import field_place
from tuner.space.build import build_space

ZERO_DIMS = BATCHING + '\ninput [{ name: "x" data_type: TYPE_FP32\n  dims: [ 0 ] }]'


def test_a_config_that_is_wrong_by_itself_is_told_before_the_space_is_gone_through() -> None:
    large = {**USUAL, "instance_group.count": {"int": [1, 900_000]}}
    place = partial(field_place, "m/config.pbtxt", ZERO_DIMS)
    began = time.process_time()
    with pytest.raises(SpecError) as error:
        build_space(spec_of(large), Base.of_file(parse(ZERO_DIMS)), place=place)
    assert time.process_time() - began < 1
    assert error.value.message == "m/config.pbtxt:3:3: input[0].dims: input x has dimension 0"
    assert error.value.hint == "mend the model's config first: -1 is any length"


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
