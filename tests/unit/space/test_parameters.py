from __future__ import annotations

import random

import pytest

from tuner.space.parameters import ChoiceParameter, Knob, RangeParameter

DELAY = RangeParameter(Knob("m", "delay"), 50, 10_000, log=True, special=(0,))


def test_a_choice_tells_booleans_from_numbers() -> None:
    assert True not in ChoiceParameter(Knob("m", "p"), (1, 8))
    assert 1 in ChoiceParameter(Knob("m", "p"), (1, 8))


def test_a_range_holds_its_bounds_its_steps_and_its_special_value() -> None:
    stepped = RangeParameter(Knob("m", "p"), 2, 10, step=4, special=(None,))
    assert [v for v in range(12) if v in stepped] == [2, 6, 10]
    assert None in stepped
    assert stepped.count == len(list(stepped)) == 4


def test_a_range_does_not_hold_true() -> None:
    assert True not in RangeParameter(Knob("m", "p"), 0, 4)


def test_draws_from_a_log_range_are_even_by_ratio_and_reach_the_special_value() -> None:
    rng = random.Random(1)
    drawn = [DELAY.draw(rng) for _ in range(4000)]
    assert all(v in DELAY for v in drawn)
    assert drawn.count(0) / len(drawn) == pytest.approx(0.5, abs=0.05)
    positive = [v for v in drawn if isinstance(v, int) and v > 0]
    middle = (50 * 10_000) ** 0.5
    assert sum(v < middle for v in positive) / len(positive) == pytest.approx(0.5, abs=0.05)


def test_a_coarse_log_range_is_evenly_spread_by_ratio_and_keeps_the_special_value() -> None:
    coarse = DELAY.coarse(4)
    assert coarse.values == (0, 50, 292, 1710, 10_000)
    assert all(v in DELAY for v in coarse.values)


def test_a_coarse_range_stays_on_its_steps() -> None:
    stepped = RangeParameter(Knob("m", "p"), 1, 100, step=3)
    assert all(v in stepped for v in stepped.coarse(5).values)


def test_a_short_range_is_not_made_coarser() -> None:
    short = RangeParameter(Knob("m", "p"), 1, 4, special=(None,))
    assert short.coarse(8).values == (
        None,
        1,
        2,
        3,
        4,
    )
