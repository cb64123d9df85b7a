"""Which batch sizes are asked once before anything is measured."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.load.probes.preparing import batch_sizes
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
