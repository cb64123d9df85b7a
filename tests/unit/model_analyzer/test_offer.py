"""What of a space Model Analyzer may vary, and its wishes mapped into the space."""

from __future__ import annotations

from typing import Any

import pytest
from builders.candidates import fields_of
from builders.spaces import BATCH, BATCHER, BATCHING, CACHE, DELAY, INSTANCES, PREFERRED, space_of

from tuner.model_analyzer.search import nearest, offered
from tuner.modelconfig.message import parse

CONFIG = (
    'name: "m" backend: "python" max_batch_size: {batch} '
    "instance_group [{{count: {count} kind: KIND_CPU}}] {batcher}"
)


def wanted(batch: int = 8, count: int = 2, batcher: str = "dynamic_batching { }") -> Any:
    return parse(CONFIG.format(batch=batch, count=count, batcher=batcher))


def test_values_are_offered_within_the_bounds_of_the_space() -> None:
    space = space_of(
        {
            INSTANCES: {"int": [2, 4]},
            BATCH: {"choice": [16, 4]},
            DELAY: {"int": [100, 10_000], "log": True, "or": 0},
            PREFERRED: {"subsets": [4, 8], "at_most": 2, "or": "unset"},
        }
    )
    offer = offered(space)
    assert offer.instances == (2, 3, 4)
    assert offer.max_batch_sizes == (4, 16)
    assert offer.delays_us[:2] == (0, 100)
    assert offer.delays_us[-1] == 10_000
    assert len(offer.delays_us) == 9
    assert set(offer.preferred) == {(), (4,), (8,), (4, 8)}


def test_fields_outside_the_space_are_not_offered() -> None:
    offer = offered(space_of({DELAY: {"int": [0, 200]}}))
    assert offer.instances == (1,)
    assert offer.max_batch_sizes == ()
    assert offer.preferred == ()


@pytest.mark.parametrize(
    ("batch", "count", "expected"),
    [(8, 2, (8, 2)), (1, 1, (8, 1)), (64, 9, (32, 4)), (12, 3, (16, 3)), (11, 3, (8, 3))],
)
def test_numbers_outside_the_space_become_the_nearest_by_ratio(
    batch: int, count: int, expected: tuple[int, int]
) -> None:
    batched = BATCHING + "dynamic_batching { }"
    space = space_of({INSTANCES: {"int": [1, 4]}, BATCH: {"choice": [8, 16, 32]}}, batched)
    candidate = nearest(space, wanted(batch, count))
    assert candidate is not None
    assert (fields_of(candidate)[BATCH], fields_of(candidate)[INSTANCES]) == expected


@pytest.mark.parametrize(
    ("batcher", "delay", "preferred"),
    [
        ("dynamic_batching { }", 0, None),
        ("dynamic_batching { max_queue_delay_microseconds: 900 }", 900, None),
        ("dynamic_batching { max_queue_delay_microseconds: 7 }", 0, None),
        ("dynamic_batching { max_queue_delay_microseconds: 99 }", 100, None),
        ("dynamic_batching { preferred_batch_size: [4] }", 0, (4,)),
        ("dynamic_batching { preferred_batch_size: [4, 6, 8] }", 0, (4, 8)),
    ],
)
def test_fields_of_the_batcher_become_the_nearest(
    batcher: str, delay: int, preferred: tuple[int, ...] | None
) -> None:
    space = space_of(
        {
            DELAY: {"int": [100, 10_000], "log": True, "or": 0},
            PREFERRED: {"subsets": [4, 8], "at_most": 2, "or": "unset"},
        }
    )
    candidate = nearest(space, wanted(16, 1, batcher))
    assert candidate is not None
    assert fields_of(candidate)[DELAY] == delay
    assert fields_of(candidate)[PREFERRED] == preferred


def test_other_fields_stay_as_in_the_current_config() -> None:
    given = {
        INSTANCES: {"int": [1, 4]},
        "parameters.threads": {"choice": [1, 2]},
        CACHE: {"choice": [False, "64MiB"]},
    }
    config = CONFIG.format(batch=8, count=1, batcher="")
    threads = 'parameters { key: "threads" value { string_value: "2" } }'
    candidate = nearest(space_of(given, config + threads), wanted(8, 3, ""))
    assert fields_of(candidate)["parameters.threads"] == 2
    assert fields_of(candidate)[INSTANCES] == 3
    assert candidate.cache_bytes is None


def test_a_batcher_that_is_searched_follows_model_analyzer() -> None:
    space = space_of({INSTANCES: {"int": [1, 4]}, BATCHER: {"choice": [False, True]}})
    on, off = (nearest(space, wanted(8, 2, batcher)) for batcher in ("dynamic_batching { }", ""))
    assert on is not None
    assert off is not None
    assert fields_of(on)[BATCHER] is True
    assert fields_of(off)[BATCHER] is None


def test_a_batch_size_without_preferred_sizes_has_no_candidate() -> None:
    space = space_of({BATCH: {"choice": [2, 8]}, PREFERRED: {"subsets": [4, 8], "at_most": 1}})
    assert nearest(space, wanted(2)) is None
