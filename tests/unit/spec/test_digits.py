from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.spec.units import digits


@pytest.mark.parametrize(
    ("value", "most", "text"),
    [
        (10760.0, 4, "10760"),
        (2070000.0, 3, "2070000"),
        (0.00001, 3, "0.00001"),
        (0.0, 3, "0"),
        (9.999, 3, "10"),
        (99.96, 3, "100"),
        (31.25, 3, "31.2"),
        (-0.5, 3, "-0.5"),
        (1e-300, 2, "0." + "0" * 299 + "1"),
        (math.inf, 3, "inf"),
    ],
)
def test_numbers_are_plain(value: float, most: int, text: str) -> None:
    assert digits(value, most) == text


@given(st.floats(1e-6, 1e12), st.integers(1, 6))
def test_no_number_has_an_exponent_and_each_is_near_its_value(value: float, most: int) -> None:
    text = digits(value, most)
    assert "e" not in text
    assert float(text) == pytest.approx(value, rel=0.51 * 10 ** (1 - most))
