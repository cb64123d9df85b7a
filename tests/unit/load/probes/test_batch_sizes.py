"""Which batch sizes are asked once before anything is measured."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.load.probes.batch_sizes import batch_sizes, sizes_of
from tuner.load.probes.first_answers import asked_at_once
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import new_config


def config(most: int, *, batcher: bool = True, cache: bool = False) -> Any:
    made: Any = new_config()
    made.max_batch_size = most
    if batcher:
        made.dynamic_batching.SetInParent()
    made.response_cache.enable = cache
    return made


@pytest.mark.parametrize(
    ("most", "least", "expected"),
    [
        (8, 1, [2, 4, 8]),
        (6, 1, [2, 4, 6]),
        (32, 4, [8, 16, 32]),
        (6, 4, [6]),
        (8, 8, []),
        (1, 1, []),
        (0, 1, []),
    ],
)
def test_sizes_are_doubled_up_to_the_largest(most: int, least: int, expected: list[int]) -> None:
    assert batch_sizes(config(most), least) == expected


def test_without_a_batcher_or_with_a_cache_nothing_more_is_asked() -> None:
    assert batch_sizes(config(8, batcher=False), 1) == []
    assert batch_sizes(config(8, cache=True), 1) == []


def test_an_ensemble_is_asked_for_what_its_steps_batch_and_once_for_each_instance_of_the_widest():
    whole = parse('platform: "ensemble" max_batch_size: 4 ensemble_scheduling { }')
    single = parse("max_batch_size: 8 instance_group { count: 3 }")
    assert sizes_of([whole, config(8), single], 1) == [2, 4]
    assert sizes_of([whole, single], 1) == []
    whole.response_cache.enable = True
    assert sizes_of([whole, config(8)], 1) == []
    assert asked_at_once([whole, config(8), single]) == 3
    assert asked_at_once([whole]) == 1
