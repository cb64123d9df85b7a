"""The confirmation's error and power, by simulation: few runs here, many in the benchmark."""

from __future__ import annotations

import pytest
from confirmation_power import MOST_WRONG, as_wanted, simulate

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("finalists", "runs"), [(1, 120), (5, 60)])
def test_a_gain_that_is_just_not_worth_a_change_is_hardly_ever_confirmed(
    finalists: int, runs: int
) -> None:
    found = simulate(0.02, 0.01, finalists, runs)
    assert found.confirmed <= MOST_WRONG
    assert found.covered >= 0.95


def test_a_gain_of_five_percent_is_found_through_noise_of_one() -> None:
    found = simulate(0.05, 0.01, 1, 60)
    assert as_wanted(5.0, 1.0, found, 60)
    assert found.rounds > 3.0  # three rounds alone prove little


def test_a_large_gain_needs_three_rounds() -> None:
    assert simulate(0.30, 0.01, 1, 20).rounds == 3.0


def test_no_gain_is_given_up_at_the_first_look_as_a_rule() -> None:
    found = simulate(0.0, 0.01, 1, 40)
    assert found.confirmed == 0.0
    assert found.rounds < 4.0
