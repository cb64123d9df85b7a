"""One round of one config: which loads it is measured at, and what that tells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import geometric_mean

import pytest
from builders.measurements import (
    NO_ERRORS,
    P99_40MS,
    Probe,
    synthetic_measurement,
    synthetic_server,
)

from tuner.confirm.rounds import (
    Contender,
    Entrant,
    Round,
    measure_fixed_round,
    search_round,
)
from tuner.errors import ClientLimitError, LoadFailedError
from tuner.measurement.measurement import Arrivals
from tuner.score.capacity import LevelRange, capacity_level, crossing, steepness
from tuner.score.point import Point, judge_point
from tuner.space.candidate import Candidate

RATES = LevelRange(0.1, 1e5)
CLIENTS = LevelRange(1, 64, whole=True)


def rising(capacity: float, power: float = 8.0) -> Callable[[float], Point]:
    """The bound is used up by this power of the load; no load saturates it."""

    def measure(level: float) -> Point:
        measurement = synthetic_measurement(level, 40e3 * (level / capacity) ** power)
        return judge_point([P99_40MS, NO_ERRORS], measurement)

    return measure


def clients(capacity: float, serves: Callable[[float], float]) -> Callable[[float], Point]:
    """A closed loop: latency rises as the clients do, ``serves`` inferences per second."""

    def measure(level: float) -> Point:
        measurement = synthetic_measurement(
            level, 40e3 * level / capacity, served=serves(level), arrivals=Arrivals.CLOSED
        )
        return judge_point([P99_40MS, NO_ERRORS], measurement)

    return measure


def levels_of(found: Round) -> list[float]:
    return [p.measurement.load.level for p in found.points]


def contender(*rounds: Sequence[Point]) -> Contender:
    return Contender(Entrant(Candidate(), 100.0), [Round(tuple(points)) for points in rounds])


class TestLevels:
    def test_a_round_is_four_percent_below_and_above_what_it_should_stand(self) -> None:
        found = search_round(rising(100.0), 100.0, RATES)
        assert levels_of(found) == pytest.approx([96.0, 96.0 * 1.08])
        assert found.passed
        assert found.sustained.measurement.load.level == 96.0

    def test_a_config_that_stands_less_is_measured_below_in_growing_steps(self) -> None:
        found = search_round(rising(60.0, power=1.0), 100.0, RATES)
        # the second as far as the utilisation says, the third and fourth as far as they may
        second = 96 / 1.08 / (96 / 1.08 / 60) ** (1 / 3)
        expected = [96.0, 96 / 1.08, second, second / 1.16, second / 1.16 / 1.32]
        assert levels_of(found)[:5] == pytest.approx(expected, rel=1e-4)
        assert found.passed

    def test_below_an_overload_it_goes_to_what_was_answered(self) -> None:
        def measure(level: float) -> Point:
            return judge_point([P99_40MS, NO_ERRORS], synthetic_server(level, 40.0))

        found = search_round(measure, 100.0, RATES)
        assert levels_of(found)[:2] == [96.0, 0.95 * 42.0]

    def test_a_config_that_stands_more_is_measured_above_in_growing_steps(self) -> None:
        found = search_round(rising(120.0, power=4.0), 100.0, RATES)
        expected = [96.0, 103.68, 111.97, 129.89, 120.0]  # and where the capacity seems to be
        assert levels_of(found) == pytest.approx(expected, rel=1e-2)

    def test_six_measurements_are_the_most(self) -> None:
        found = search_round(rising(1000.0), 100.0, RATES)
        assert len(found.points) == 6
        assert found.passed
        found = search_round(rising(0.2), 100.0, RATES)
        assert len(found.points) == 6
        assert not found.passed
        assert found.sustained.measurement.load.level == min(levels_of(found))

    def test_the_same_load_is_not_measured_twice(self) -> None:
        assert levels_of(search_round(rising(500.0), 100.0, LevelRange(1, 96))) == [96.0]
        assert levels_of(search_round(rising(50.0), 100.0, LevelRange(96, 1000))) == [96.0]

    def test_where_it_passed_close_below_its_bound_no_failure_is_needed(self) -> None:
        close = rising(100.0, power=1.0)
        assert levels_of(search_round(close, 90.0, RATES)) == pytest.approx([86.4, 93.312])
        far = rising(112.0, power=1.0)  # 0.833 of the bound at 93.312
        assert len(search_round(far, 90.0, RATES).points) == 3

    @pytest.mark.parametrize(
        ("capacity", "asked"), [(3.0, [3, 4]), (2.0, [3, 2]), (1.0, [3, 2, 1])]
    )
    def test_clients_are_whole_and_one_more_or_less_at_the_least(
        self, capacity: float, asked: list[float]
    ) -> None:
        found = search_round(clients(capacity, lambda n: 10 * n), 3.0, CLIENTS)
        assert levels_of(found) == asked

    def test_few_requests_per_second_are_not_whole(self) -> None:
        assert levels_of(search_round(rising(3.0), 3.0, RATES)) == pytest.approx([2.88, 3.1104])

    def test_a_brief_round_is_over_with_a_pass_near_its_bound(self) -> None:
        near, far = rising(100.0), rising(100.0, power=12.0)  # 0.72 and 0.61 of it at 96
        assert levels_of(search_round(near, 100.0, RATES, brief=True)) == [96.0]
        assert len(search_round(far, 100.0, RATES, brief=True).points) == 2
        missed = search_round(rising(95.0), 100.0, RATES, brief=True)
        assert levels_of(missed) == pytest.approx([96.0, 92.308])

    def test_a_rough_round_is_over_between_a_pass_and_a_failure_some_way_apart(self) -> None:
        rough = search_round(rising(110.0, power=12.0), 100.0, RATES, rough=True)
        assert levels_of(rough) == pytest.approx([96.0, 96.0 * 1.16])
        assert rough.bounded
        assert len(search_round(rising(110.0, power=12.0), 100.0, RATES).points) == 3

    def test_a_round_beyond_what_the_client_can_send_ends_at_what_it_can(self) -> None:
        def limited(level: float) -> Point:
            if level > 100.0:
                raise ClientLimitError("it could not keep up", sent_per_s=100.0)
            return rising(500.0)(level)

        for expected, measured in ((100.0, [96.0]), (300.0, [90.0])):
            found = search_round(limited, expected, RATES)
            assert levels_of(found) == measured
            side = Contender(Entrant(Candidate(), expected), [found])
            assert side.limited
            assert side.levels() == [measured[0]]  # at least
        assert not Contender(
            Entrant(Candidate(), 50.0), [search_round(rising(50.0), 50.0, RATES)]
        ).limited

    def test_a_load_that_was_sent_to_another_and_not_to_this_one_is_too_much_for_it(self) -> None:
        def limited(level: float) -> Point:
            if level > 100.0:
                raise ClientLimitError("it could not keep up", sent_per_s=100.0)
            return rising(500.0)(level)

        found = search_round(limited, 100.0, RATES, sent=981.0)
        side = Contender(Entrant(Candidate(), 100.0), [found])
        assert found.points[0].level == 96.0
        assert not side.limited
        assert 96.0 <= side.levels()[0] <= 104.0

    def test_a_client_that_sends_hardly_anything_gives_no_round(self) -> None:
        def nothing(level: float) -> Point:
            raise ClientLimitError("it could not keep up", sent_per_s=level)

        with pytest.raises(ClientLimitError):
            search_round(nothing, 200.0, RATES)

    def test_a_load_above_a_pass_from_which_no_result_comes_was_too_much(self) -> None:
        def drowning(level: float) -> Point:
            if level > 100.0:
                raise LoadFailedError("no results by the deadline")
            return rising(110.0)(level)

        found = search_round(drowning, 100.0, RATES)
        assert levels_of(found) == [96.0]
        assert found.passed
        assert found.drowned == pytest.approx((103.68,))
        assert Contender(Entrant(Candidate(), 100.0), [found]).levels() == pytest.approx(
            [math.sqrt(96.0 * 103.68)]
        )
        with pytest.raises(LoadFailedError):
            search_round(drowning, 200.0, RATES)


def waiting(saturation: float, base: float) -> Callable[[float], Point]:
    """Capacity 100: latency as of M/M/1 over a base; overloaded it grows in the window."""
    wait = (1.0 - base) * (1.0 - 100.0 / saturation)

    def measure(level: float) -> Point:
        stress = 1.0 + 40.0 * (level / saturation - 0.97)
        if level < saturation:
            steady = base + wait / (1.0 - level / saturation)
            stress = steady if level < 0.99 * saturation else min(steady, max(stress, 1.0 + 1e-9))
        served = min(level, saturation)
        measured = synthetic_measurement(level, 40e3 * stress, served=served)
        return judge_point([P99_40MS, NO_ERRORS], measured)

    return measure


class TestShapes:
    """Equal configs whose latency rises in different ways have equal capacities."""

    SHAPES = (
        *(rising(100.0, power) for power in (2.0, 4.0, 8.0, 12.0)),
        *(waiting(100.0 * s, base) for s in (1.02, 1.05, 1.1, 1.2) for base in (0.0, 0.3)),
    )

    @staticmethod
    def found(measure: Callable[[float], Point], *, fine: bool) -> tuple[float, float]:
        """Capacity and measurements of a round, mean over where it begins."""
        starts = [100.0 * (0.97 + 0.005 * n) for n in range(13)]
        rounds = [search_round(measure, start, RATES, fine=fine) for start in starts]
        levels = [Contender(Entrant(Candidate(), 100.0), [r]).levels()[0] for r in rounds]
        return geometric_mean(levels), sum(len(r.points) for r in rounds) / len(rounds)

    def test_their_capacities_differ_by_a_percent_at_the_most(self) -> None:
        levels = [self.found(shape, fine=True)[0] for shape in self.SHAPES]
        assert max(levels) / min(levels) < 1.011
        assert geometric_mean(levels) == pytest.approx(100.0, rel=0.006)

    def test_a_third_measurement_is_made_only_where_the_shape_matters(self) -> None:
        flat, steep = rising(100.0, 4.0), waiting(105.0, 0.3)
        assert self.found(flat, fine=True)[1] == 2.0
        assert 2.0 < self.found(steep, fine=True)[1] <= 3.0
        assert self.found(steep, fine=False)[1] <= 2.1


class TestCapacity:
    def test_between_a_pass_and_a_failure_close_above_it_is_where_the_stress_is_one(self) -> None:
        below, above = Probe(96, True, 96, 0.8), Probe(104, False, 104, 1.4)
        # a line of 1 / sqrt(stress): 1.1180 at 96, 0.8452 at 104
        assert capacity_level([below, above], 5.0) == pytest.approx(
            96 + 8 * 0.1180 / 0.2728, rel=1e-4
        )
        assert capacity_level([below, above], 5.0) == pytest.approx(
            crossing(below, above), rel=5e-3
        )

    def test_without_a_failure_close_by_each_measurement_near_the_bound_says_by_the_slope(
        self,
    ) -> None:
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
    def test_what_is_not_near_the_bound_says_nothing(self, unlike: Probe) -> None:
        passed = Probe(80, True, 80, 0.75)
        alone, both = ([passed], [passed, unlike])
        if unlike.passed:
            assert capacity_level(both, 10.0) == pytest.approx(80 * 0.75**-0.1)
        assert steepness([both]) == steepness([alone]) is None

    @pytest.mark.parametrize("stress", [0.7, 1.6])
    def test_the_ends_of_what_is_near_belong_to_it(self, stress: float) -> None:
        edge = Probe(100, stress <= 1.0, 100, stress)
        assert capacity_level([edge], 2.0) == pytest.approx(100 / stress**0.5)

    def test_a_round_that_stood_nothing_is_its_lowest_load(self) -> None:
        assert capacity_level([Probe(90, False), Probe(80, False)], 4.0) == 80

    def test_the_slope_is_that_within_the_rounds(self) -> None:
        def round_of(capacity: float) -> list[Probe]:
            return [Probe(n, n <= capacity, n, (n / capacity) ** 6) for n in (96.0, 104.0)]

        assert steepness([round_of(100.0), round_of(102.0)]) == pytest.approx(6.0)
        flat = [Probe(96, True, 96, 0.8), Probe(104, True, 104, 0.801)]
        assert steepness([flat]) == 1.0
        steep = [Probe(99.9, True, 99.9, 0.75), Probe(100, False, 100, 1.5)]
        assert steepness([steep]) == 40.0

    def test_a_config_without_a_slope_of_its_own_takes_the_other_ones(self) -> None:
        alone = contender([rising(100.0)(97.0)])
        assert alone.steepness() is None
        alone.slope = 8.0
        assert alone.steepness() == 8.0
        assert alone.levels() == pytest.approx([100.0])
        two = contender([rising(100.0, 4.0)(97.0), rising(100.0, 4.0)(103.0)])
        two.slope = 8.0
        assert two.steepness() == pytest.approx(4.0)


class TestServed:
    def test_of_rates_it_is_the_load_in_inferences(self) -> None:
        points = [rising(100.0)(level) for level in (96.0, 104.0)]
        batches = [replace(p, measurement=replace(p.measurement, batch_size=4)) for p in points]
        assert contender(batches).capacities() == pytest.approx([400.0], rel=5e-3)

    def test_at_the_load_that_the_spec_lists_it_is_what_was_served(self) -> None:
        one = Contender(Entrant(Candidate(), 200.0))
        measured = judge_point([P99_40MS], synthetic_measurement(200.0, served=196.0))
        one.rounds.append(measure_fixed_round(lambda _: measured, 200.0))
        assert one.capacities() == [196.0]

    def test_of_clients_it_is_in_between_what_both_loads_served(self) -> None:
        measure = clients(10.5, lambda n: 30.0 * n**0.5)
        found = contender([measure(10.0), measure(11.0)])
        assert found.levels() == pytest.approx([10.5], rel=2e-3)
        assert found.capacities() == pytest.approx([30.0 * 10.5**0.5], rel=2e-3)

    def test_of_clients_without_a_failure_it_is_what_the_highest_pass_served(self) -> None:
        measure = clients(64.0, lambda n: 30.0 * n**0.5)
        assert contender([measure(10.0), measure(20.0)]).capacities() == [30.0 * 20.0**0.5]

    def test_of_clients_without_a_pass_it_is_what_the_lowest_load_served(self) -> None:
        measure = clients(0.5, lambda n: 30.0 * n**0.5)
        assert contender([measure(2.0), measure(1.0)]).capacities() == [30.0]


def test_a_config_is_credited_with_the_load_it_met_the_slos_at_in_every_round() -> None:
    measure = rising(100.0)
    found = contender([measure(90.0), measure(98.0)], [measure(96.0), measure(104.0)])
    assert found.credited_level == 96.0
    assert [p.measurement.load.level for p in found.points] == [98.0, 96.0]


def test_a_config_is_expected_to_stand_what_it_stood_and_before_that_what_it_entered_with() -> None:
    found = contender()
    assert found.expected_level() == 100.0
    for capacity in (80.0, 125.0):
        points = tuple(rising(capacity)(capacity * share) for share in (0.97, 1.03))
        found.rounds.append(Round(points))
    assert found.expected_level() == pytest.approx(100.0, rel=3e-3)


def test_a_round_without_enough_answers_ends_without_a_pass() -> None:
    def few(level: float) -> Point:
        return judge_point([P99_40MS], synthetic_measurement(level, 30e3, count=100))

    found = search_round(few, 100.0, RATES)
    assert levels_of(found) == [96.0]
    assert not found.passed


def test_a_closed_loop_stood_what_gave_it_most() -> None:
    """At 54 clients it passes with 1184/s, with more it passes with less."""
    found = search_round(clients(80.0, lambda n: 1184.0 - 5.0 * n), 56.0, CLIENTS)
    assert found.passed
    assert found.sustained.measurement.load.level == 54.0
    assert contender(found.points).capacities() == [1184.0 - 5.0 * 54]
