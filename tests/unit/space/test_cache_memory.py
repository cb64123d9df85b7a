"""Response caches that a machine cannot hold are no candidates."""

from __future__ import annotations

import pytest

from tuner.errors import SpecError
from tuner.space.candidate import CACHE
from tuner.space.parameters import ChoiceParameter, up_to

GIB = 1 << 30


def test_sizes_above_the_memory_are_left_out() -> None:
    sizes = ChoiceParameter(CACHE, (None, GIB, 16 * GIB, 900 * GIB))
    assert [*up_to(sizes, 16 * GIB)] == [None, GIB]
    assert [*up_to(sizes, 1000 * GIB)] == [*sizes]


def test_list_without_a_size_that_fits_is_refused() -> None:
    with pytest.raises(SpecError, match="larger than this machine's memory, 16 GiB"):
        up_to(ChoiceParameter(CACHE, (900 * GIB,)), 16 * GIB)
