"""The level at which an SLO begins to be missed, by the measurements of a round."""

from __future__ import annotations

from statistics import geometric_mean

import pytest
from builders.measurements import Probe
from hypothesis import given
from hypothesis import strategies as st

from tuner.score.capacity import capacity_level, crossing, steepness

BELOW, ABOVE = Probe(96, True, 96, 0.8), Probe(104, False, 104, 1.4)


def test_between_a_pass_and_a_failure_close_above_it_is_where_the_stress_is_one() -> None:
    # a line of 1 / sqrt(stress): 1.1180 at 96, 0.8452 at 104
    level = capacity_level([BELOW, ABOVE], 5.0)
    assert level == pytest.approx(96 + 8 * 0.1180 / 0.2728, rel=1e-4)
    assert level == pytest.approx(crossing(BELOW, ABOVE), rel=5e-3)


@pytest.mark.parametrize(("served", "level"), [(99.0, 99.0), (90.0, 96.0)])
def test_where_a_load_was_missed_only_by_what_it_left_unanswered_it_is_what_was_answered(
    served: float, level: float
) -> None:
    """A long SLO: no answer is late within the window, and no more comes of more load."""
    unanswered = Probe(104, False, served, 0.6)
    assert capacity_level([Probe(96, True, 96, 0.5), unanswered]) == level


@given(st.floats(0.5, 0.99), st.floats(1.01, 5.0), st.floats(0.5, 1.0))
def test_capacity_level_lies_between_the_pass_and_the_failure(
    low: float, high: float, answered: float
) -> None:
    above = Probe(104, False, 104 * answered, high)
    assert 96 * 0.999 <= capacity_level([Probe(96, True, 96, low), above]) <= 104


def test_without_a_failure_close_by_each_measurement_near_the_bound_says_by_the_slope() -> None:
    probes = [Probe(50, True, 50, 0.2), Probe(90, True, 90, 0.8), Probe(95, True, 95, 0.9)]
    expected = geometric_mean([90 / 0.8**0.25, 95 / 0.9**0.25])
    assert capacity_level(probes, 4.0) == pytest.approx(expected)
    assert capacity_level(probes, None) == 95


@pytest.mark.parametrize(
    "unlike",
    [
        Probe(90, True, 90, 0.69),
        Probe(90, False, 90, 1.61),
        Probe(90, False, 90, 0.9),  # it failed by another SLO
        Probe(90, False, 80, 1.2),  # saturated
        Probe(90, True),
    ],
)
def test_loads_far_from_the_bound_show_no_steepness(unlike: Probe) -> None:
    passed = Probe(80, True, 80, 0.75)
    alone, both = [passed], [passed, unlike]
    if unlike.passed:
        assert capacity_level(both, 10.0) == pytest.approx(80 * 0.75**-0.1)
    assert steepness([both]) == steepness([alone]) is None


@pytest.mark.parametrize("stress", [0.7, 1.6])
def test_the_ends_of_what_is_near_belong_to_it(stress: float) -> None:
    edge = Probe(100, stress <= 1.0, 100, stress)
    assert capacity_level([edge], 2.0) == pytest.approx(100 / stress**0.5)


def test_a_round_that_sustained_nothing_is_its_lowest_load_or_what_was_answered() -> None:
    assert capacity_level([Probe(90, False), Probe(80, False)], 4.0) == 80
    assert capacity_level([Probe(90, False, 30.0, 50.0), Probe(80, False, 40.0, 50.0)], 4.0) == 30


def test_the_slope_is_that_within_the_rounds() -> None:
    def round_of(capacity: float) -> list[Probe]:
        return [Probe(n, n <= capacity, n, (n / capacity) ** 6) for n in (96.0, 104.0)]

    assert steepness([round_of(100.0), round_of(102.0)]) == pytest.approx(6.0)
    flat = [Probe(96, True, 96, 0.8), Probe(104, True, 104, 0.801)]
    assert steepness([flat]) == 1.0
    steep = [Probe(99.9, True, 99.9, 0.75), Probe(100, False, 100, 1.5)]
    assert steepness([steep]) == 40.0
