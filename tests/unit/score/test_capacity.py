"""Between which loads the capacity lies, and where it is guessed to be."""

from __future__ import annotations

import math

import pytest
from builders.measurements import Probe

from tuner.score.capacity import Bracket, LevelRange, crossing, saturated

OPEN = LevelRange(0.1, 1e6)


@pytest.mark.parametrize("level", [80, 90])
def test_a_pass_at_or_above_a_failure_takes_the_failure_back(level: float) -> None:
    bracket = Bracket.of([Probe(50, True), Probe(80, False), Probe(level, True)])
    assert bracket == Bracket(Probe(level, True), None)


def test_the_crossing_is_where_the_stress_is_one() -> None:
    assert crossing(Probe(100, True, None, 0.5), Probe(200, False, None, 2.0)) == pytest.approx(
        100 * 2**0.5
    )
    near_the_floor = crossing(Probe(100, True, None, 0.99), Probe(200, False, None, 50.0))
    assert 100 < near_the_floor < 101


def test_without_readings_the_crossing_is_the_middle() -> None:
    assert crossing(Probe(100, True), Probe(400, False)) == pytest.approx(200)
    for low, high in ((0.0, 2.0), (0.5, 1.0), (0.5, None), (1.1, 2.0)):  # nor with such
        below, above = Probe(100, True, None, low), Probe(400, False, None, high)
        assert crossing(below, above) == pytest.approx(200)
    assert crossing(Probe(100, True, None, 1.0), Probe(400, False, None, 2.0)) == 100


def test_a_saturated_ceiling_alone_does_not_close_a_bracket() -> None:
    floor = Probe(100, True, 100, 0.99)
    assert not Bracket(floor, Probe(112, False, 101, 20.0)).closed(0.03)
    assert Bracket(floor, Probe(110, False, 110, 1.5)).closed(0.03)


def test_a_capacity_is_not_above_what_a_saturated_server_answered() -> None:
    floor = Probe(950.0, passed=True, served_per_s=950.0, slo_utilisation=0.2)
    ceiling = Probe(2400.0, passed=False, served_per_s=1000.0, slo_utilisation=1.5)
    assert Bracket(floor, ceiling).capacity() == 1000.0
    less = Probe(
        2400.0, passed=False, served_per_s=900.0, slo_utilisation=1.5
    )  # it lost by the overload
    assert Bracket(floor, less).capacity() == crossing(floor, less)


@pytest.mark.parametrize(
    ("floor", "ceiling", "top"),
    [
        (50.0, None, math.inf),
        (50.0, Probe(100, False, 60.0), 60.0),  # what it answered, saturated
        (50.0, Probe(100, False, 50.0), 100.0),  # no more than it sustained
        (50.0, Probe(100, False, 98.0), 100.0),  # not saturated
        (50.0, Probe(100, False), 100.0),
        (None, Probe(100, False, 60.0), 100.0),
    ],
)
def test_no_level_passes_above_a_failure_nor_above_what_it_answered(
    floor: float | None, ceiling: Probe | None, top: float
) -> None:
    assert Bracket(None if floor is None else Probe(floor, True), ceiling).top == top


def test_a_server_that_answers_97_percent_of_what_is_sent_is_not_saturated() -> None:
    assert not saturated(Probe(100, False, 97.0))
    assert saturated(Probe(100, False, 96.9))
    assert not saturated(Probe(100, False))


@pytest.mark.parametrize(("crosses", "closed"), [(1.012, True), (1.0148, True), (1.016, False)])
def test_a_bracket_is_closed_where_its_crossing_is_within_half_the_tolerance_of_the_floor(
    crosses: float, closed: bool
) -> None:
    share = math.log(crosses) / math.log(1.1)
    floor = Probe(100, True, 100, math.exp(-share))
    ceiling = Probe(110, False, 110, math.exp(1 - share))
    assert crossing(floor, ceiling) == pytest.approx(100 * crosses)
    assert Bracket(floor, ceiling).closed(0.03) is closed


@pytest.mark.parametrize(("above", "closed"), [(111.9, True), (112.1, False)])
def test_a_straight_line_is_trusted_over_four_tolerances(above: float, closed: bool) -> None:
    floor, ceiling = Probe(100, True, 100, 0.999), Probe(above, False, above, 1.5)
    assert crossing(floor, ceiling) < 100.1
    assert Bracket(floor, ceiling).closed(0.03) is closed


def test_levels_are_kept_within_their_range_and_to_five_digits() -> None:
    assert OPEN.nearest(0.01) == 0.1
    assert OPEN.nearest(1e9) == 1e6
    assert OPEN.nearest(123.456789) == 123.46
    assert LevelRange(1, 256, integer=True).nearest(7.6) == 8.0
    assert not LevelRange(1, 256).integer


def test_capacity_without_a_failure_is_the_load_that_passed() -> None:
    assert Bracket(Probe(50, True)).capacity() == 50
    assert Bracket(None, Probe(50, False)).capacity() is None
    assert Bracket(Probe(50, True)).gap == Bracket(None, Probe(50, False)).gap == math.inf
    assert Bracket(Probe(50, True), Probe(60, False)).gap == pytest.approx(0.2)


def test_too_few_answers_for_a_verdict_are_neither_floor_nor_ceiling() -> None:
    undecided = Probe(100, False, 100, 0.5, few=True)
    assert Bracket.of([undecided]) == Bracket()
    below, above = Probe(90, True), Probe(110, False)
    assert Bracket.of([below, undecided, above]) == Bracket(below, above)
