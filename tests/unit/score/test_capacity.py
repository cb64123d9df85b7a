from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from builders.measurements import Probe
from hypothesis import given
from hypothesis import strategies as st

from tuner.score.capacity import Bracket, LevelRange, crossing, saturated
from tuner.score.next_load import MOST_FREE, TOLERANCE, CapacitySearch, StepRule, next_load

OPEN = LevelRange(0.1, 1e6)


def find_capacity(
    probe: Callable[[float], Probe], start: float, levels: LevelRange, *about: float, **more: Any
) -> Bracket:
    search = CapacitySearch(start, levels, *about, **more)
    while (level := search.ask()) is not None:
        search.tell(probe(level))
    return Bracket.of(search.probes)


def next_level(probes: Sequence[Probe], tolerance: float = TOLERANCE) -> float:
    return next_load(probes, OPEN, StepRule(tolerance=tolerance))


def emulated(
    capacity: float, asked: list[float], steepness: float = 12.0, base: float = 0.3
) -> Callable[[float], Probe]:
    """Latency flat at first, then rising with a power of the load; saturated 6 % above capacity."""

    def probe(level: float) -> Probe:
        asked.append(level)
        stress = base + (1.0 - base) * (level / capacity) ** steepness
        return Probe(level, level <= capacity, min(level, 1.06 * capacity), min(stress, 60.0))

    return probe


def without_readings(capacity: float, asked: list[float]) -> Callable[[float], Probe]:
    def probe(level: float) -> Probe:
        asked.append(level)
        return Probe(level, level <= capacity)

    return probe


@given(st.floats(2, 50_000), st.floats(1, 100_000))
def test_the_capacity_is_bracketed_from_any_start(capacity: float, start: float) -> None:
    asked: list[float] = []
    bracket = find_capacity(without_readings(capacity, asked), start, OPEN, 0.05, at_most=60)
    assert bracket.closed(0.05)
    assert bracket.floor.level <= capacity < bracket.ceiling.level


@pytest.mark.parametrize("steepness", [4.0, 8.0, 16.0, 40.0])
@pytest.mark.parametrize(
    ("start", "base"),
    [*product([0.6, 0.9, 1.1, 1.5, 3.0], [0.1, 0.3, 0.6]), (0.3, 0.1), (0.3, 0.3)],
)
def test_from_a_rough_start_five_probes_come_within_three_percent(
    start: float, base: float, steepness: float
) -> None:
    asked: list[float] = []
    bracket = find_capacity(emulated(1000.0, asked, steepness, base), 1000 * start, OPEN)
    assert len(asked) <= 5
    assert bracket.capacity() == pytest.approx(1000.0, rel=TOLERANCE)


@pytest.mark.parametrize("base", [0.1, 0.4, 0.6])
@pytest.mark.parametrize("start", [0.04, 0.1, 0.25])
def test_from_far_below_two_probes_more_lose_no_accuracy(start: float, base: float) -> None:
    asked: list[float] = []
    bracket = find_capacity(emulated(1000.0, asked, 12.0, base), 1000 * start, OPEN)
    assert len(asked) <= 5 + MOST_FREE
    assert bracket.capacity() == pytest.approx(1000.0, rel=TOLERANCE)


def test_a_latency_that_does_not_rise_allows_a_step_by_what_is_left() -> None:
    flat = [Probe(100, True, 100, 0.6), Probe(160, True, 160, 0.6)]
    assert next_level(flat) == pytest.approx(160 / 0.6**2, rel=1e-4)
    near = [Probe(2190, True, 2190, 0.84), Probe(2600, True, 2600, 0.8)]
    assert next_level(near) == pytest.approx(2600 / 0.8**2, rel=1e-4)
    assert next_level([flat[0], Probe(160, True, 160, 0.9)]) < 200


def test_what_an_overloaded_server_answers_bounds_the_next_level() -> None:
    asked: list[float] = []
    find_capacity(emulated(100.0, asked), 5000.0, OPEN)
    assert asked[1] < 110.0


@pytest.mark.parametrize(
    ("capacity", "levels", "floor", "ceiling"),
    [
        (7.0, LevelRange(1, 256, whole=True), 7.0, 8.0),  # whole numbers, to their neighbours
        (1e9, LevelRange(1, 1000), 1000.0, None),  # the highest level ends the search
        (0.0, LevelRange(10, 1000), None, 10.0),  # and so does the lowest
    ],
)
def test_a_search_ends_at_its_levels_and_asks_for_none_twice(
    capacity: float, levels: LevelRange, floor: float | None, ceiling: float | None
) -> None:
    asked: list[float] = []
    bracket = find_capacity(without_readings(capacity, asked), 100, levels, 0.01, at_most=30)
    passed, failed = floor and Probe(floor, True), ceiling and Probe(ceiling, False)
    assert bracket == Bracket(passed, failed)
    assert len(asked) == len(set(asked))
    assert not levels.whole or all(level == int(level) for level in asked)


@pytest.mark.parametrize("capacity", [3.0, 20.0, 90.0])
def test_a_closed_loop_that_fails_far_above_tells_where_it_stands(capacity: float) -> None:
    """Beyond the capacity latency rises as the clients do."""
    asked: list[float] = []

    def probe(level: float) -> Probe:
        asked.append(level)
        return Probe(level, level <= capacity, slo_utilisation=level / capacity)

    bracket = find_capacity(probe, 200, LevelRange(1, 256, whole=True), at_most=30)
    assert bracket.floor.level == capacity
    assert asked[:2] == [200, capacity]


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


def kinked(saturation: float, asked: list[float]) -> Callable[[float], Probe]:
    """Far within its bound almost up to saturation, as with a bound of many service times."""

    def probe(level: float) -> Probe:
        asked.append(level)
        load = level / saturation
        stress = 0.05 / (1.0 - load) if load < 0.999 else 50.0
        return Probe(level, stress <= 1.0, min(level, saturation), min(stress, 60.0))

    return probe


@pytest.mark.parametrize("start", [0.5, 0.8, 1.2, 2.4])
def test_no_load_is_tried_above_a_saturation_that_was_seen(start: float) -> None:
    asked: list[float] = []
    bracket = find_capacity(kinked(1000.0, asked), 1000 * start, OPEN)
    seen = next(n for n, level in enumerate(asked) if level > 1031)  # served below 97 % of it
    assert all(level <= 1000.0 for level in asked[seen + 1 :])
    assert 0.93 * 1000 <= bracket.capacity() <= 1000.0


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


def test_the_next_level_lies_a_little_beyond_the_crossing_seen_from_the_last_one() -> None:
    floor, ceiling = Probe(100, True, 100, 0.8), Probe(160, False, 160, 1.6)
    guess = crossing(floor, ceiling)
    assert next_level([ceiling, floor], 0.04) == pytest.approx(guess * 1.01, rel=1e-4)
    assert next_level([floor, ceiling], 0.04) == pytest.approx(guess * 0.99, rel=1e-4)


def test_the_next_level_keeps_off_both_ends_of_a_bracket() -> None:
    nearly_missed = Probe(100, True, 100, 1.0)
    assert next_level([Probe(160, False, 160, 50.0), nearly_missed], 0.04) == pytest.approx(
        102, rel=1e-4
    )
    barely_missed = Probe(160, False, 160, 1.0001)
    assert next_level([Probe(100, True, 100, 0.2), barely_missed], 0.04) < 160 / 1.019


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        (Probe(100, False, 80.0, 9.0), 76.0),  # 95 % of what it answers
        (Probe(100, False, 100.0, 1.9), 85.0),  # near
        (Probe(100, False, 100.0, 2.0), 50.0),  # not near
        (Probe(100, False, None, 4.0), 25.0),  # a closed loop: clients only wait
        (Probe(100, False), 50.0),
    ],
)
def test_below_a_failure_it_goes_as_far_as_the_failure_tells(
    failed: Probe, expected: float
) -> None:
    assert next_level([failed]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        ([Probe(100, True)], 200.0),
        ([Probe(100, True, 100, 0.49)], 300.0),
        ([Probe(100, True, 100, 0.5)], 200.0),  # as if latency rose as the load does
        ([Probe(100, True, 100, 0.999)], 100 / 0.97),
        ([Probe(50, True, 50, 0.2), Probe(100, True, 100, 0.8)], 100 * 0.8**-0.5),
        ([Probe(100, True, 100, 0.8), Probe(50, True, 50, 0.2)], 100 * 0.8**-0.5),
        ([Probe(50, True, 50, 0.5), Probe(100, True, 100, 0.5)], 300.0),  # at most three times
    ],
)
def test_above_a_pass_it_goes_as_far_as_the_stress_tells(
    passed: list[Probe], expected: float
) -> None:
    assert next_level(passed) == pytest.approx(expected, rel=1e-3)


def test_levels_are_kept_within_their_range_and_to_five_digits() -> None:
    assert OPEN.nearest(0.01) == 0.1
    assert OPEN.nearest(1e9) == 1e6
    assert OPEN.nearest(123.456789) == 123.46
    assert LevelRange(1, 256, whole=True).nearest(7.6) == 8.0
    assert not LevelRange(1, 256).whole


def test_what_passed_without_a_failure_is_the_capacity_and_nothing_else_is() -> None:
    assert Bracket(Probe(50, True)).capacity() == 50
    assert Bracket(None, Probe(50, False)).capacity() is None
    assert Bracket(Probe(50, True)).gap == Bracket(None, Probe(50, False)).gap == math.inf
    assert Bracket(Probe(50, True), Probe(60, False)).gap == pytest.approx(0.2)


def test_what_is_known_already_is_not_measured_and_not_counted() -> None:
    asked: list[float] = []
    known = [Probe(100, True, 100, 0.5), Probe(120, True, 120, 0.6)]
    find_capacity(emulated(1e5, asked), 1.0, OPEN, at_most=1, known=known)
    assert asked == [200.0]  # less than twice 120, so it counts
    asked.clear()
    at_ease = [Probe(100, True, 100, 0.3)]
    find_capacity(emulated(1e5, asked), 1.0, OPEN, at_most=1, known=at_ease)
    assert asked == [300.0, 900.0, 2700.0]  # the first two doubled the load and passed
    assert find_capacity(emulated(1e5, asked), 1.0, OPEN, at_most=0) == Bracket()
    asked.clear()
    find_capacity(without_readings(1e5, asked), 1.0, OPEN, at_most=1, known=[Probe(100.0, True)])
    assert asked == [200.0, 400.0, 800.0]  # so did these, which doubled it exactly


class TestTooFewAnswers:
    """A window of fixed length holds a verdict only from some load on."""

    @staticmethod
    def judged_from(least: float, capacity: float, asked: list[float]) -> Callable[[float], Probe]:
        served = emulated(capacity, asked)

        def probe(level: float) -> Probe:
            found = served(level)
            return replace(found, passed=False, undecided=True) if level < least else found

        return probe

    def test_is_neither_floor_nor_ceiling(self) -> None:
        undecided = Probe(100, False, 100, 0.5, undecided=True)
        assert Bracket.of([undecided]) == Bracket()
        below, above = Probe(90, True), Probe(110, False)
        assert Bracket.of([below, undecided, above]) == Bracket(below, above)

    def test_is_searched_upwards(self) -> None:
        asked: list[float] = []
        bracket = find_capacity(self.judged_from(30.0, 100.0, asked), 10.0, OPEN)
        assert asked[:3] == [10.0, 20.0, 40.0]
        assert asked[0] == min(asked)
        assert 40.0 <= bracket.floor.level <= 100.0

    def test_below_a_failure_is_looked_at_between_them(self) -> None:
        failed, undecided = Probe(90, False, 90, 1.2), Probe(40, False, 40, 0.5, undecided=True)
        assert next_level([failed, undecided]) == pytest.approx(60.0, rel=1e-4)

    def test_ends_at_the_highest_level_there_is(self) -> None:
        asked: list[float] = []
        levels = LevelRange(0.1, 30.0)
        assert find_capacity(self.judged_from(99.0, 9.0, asked), 10.0, levels) == Bracket()
        assert asked == [10.0, 20.0, 30.0]


@pytest.mark.parametrize("capacity", [1, 2, 3, 7])
def test_few_clients_are_searched_one_by_one(capacity: int) -> None:
    asked: list[float] = []

    def probe(level: float) -> Probe:
        asked.append(level)
        return Probe(level, level <= capacity, slo_utilisation=level / capacity * 1.001)

    bracket = find_capacity(probe, 2.0, LevelRange(1, 256, whole=True))
    assert bracket.floor.level <= capacity
    assert bracket.gap <= 1.0 / capacity or len(asked) >= 5
