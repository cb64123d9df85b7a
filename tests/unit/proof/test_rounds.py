"""Configs of known truth measured in rounds: which loads they get, and what the rounds show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server
from builders.reasons import said, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import (
    ClientLimitError,
    LoadFailedError,
    ModelFailsError,
    ServerGoneError,
    TrialError,
)
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Arrivals, Measurement
from tuner.proof.contender import MOST_LOADS, Contender, Round, measure_round
from tuner.proof.entrants import Entrant, ProofRules
from tuner.proof.measured import MeasuredOnce
from tuner.proof.rounds import RoundsResult, in_turn, run_rounds
from tuner.proof.verdict import gain_of, why
from tuner.reason import ReasonKind
from tuner.record.confirmation import Repeat, Role
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point, judge_point
from tuner.score.ratio import Ratio
from tuner.space.candidate import Candidate
from tuner.spec.metrics import GPU_MEMORY, P99_LATENCY
from tuner.spec.model import Confirm
from tuner.spec.slo import Goal, Objective

CURRENT, OTHER, THIRD = (candidate_of({"instance_group.count": n}) for n in (1, 2, 3))
SLOS = (P99_40MS, NO_ERRORS)
FIRST_SEED = 100
RATES = LevelRange(0.1, 1e5)
CLIENTS = LevelRange(1, 64, integer=True)
SEARCHED = LoadPlan(Arrivals.POISSON, None, RATES)
LATENCY = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
MEMORY = Objective(Goal.MINIMIZE, GPU_MEMORY, 300.0, "minimize gpu_memory at 300/s")
AT_300 = LoadPlan(Arrivals.POISSON, (300.0,), RATES)


def rules(
    plan: LoadPlan = SEARCHED, objective: Objective | None = None, **confirm: Any
) -> ProofRules:
    goal = objective or Objective.goodput()
    return ProofRules(goal, SLOS, plan, Confirm.model_validate(confirm), FIRST_SEED)


def race(
    bench: FreshBench,
    levels: Sequence[float],
    by: ProofRules | None = None,
    *,
    late_after: int = 10**6,
    rows: list[Repeat] | None = None,
) -> RoundsResult:
    """The current config and as many finalists as there are further levels.

    ``levels``: what the search says that they sustain.
    """
    current, *others = map(Entrant, (CURRENT, OTHER, THIRD), levels)
    measured = MeasuredOnce(bench, ([] if rows is None else rows).append)
    looks: list[str] = []

    def late() -> bool:
        return len(looks) // len(levels) >= late_after

    return run_rounds(
        measured, current, others, by or rules(), late, lambda what, _: looks.append(what)
    )


def ratio_of(result: RoundsResult, candidate: Candidate = OTHER) -> Ratio:
    return result.ratios[candidate]


class TestBadServer:
    @pytest.mark.parametrize("bad", [1, 2])
    def test_bad_servers_of_the_current_config_prove_nothing(self, bad: int) -> None:
        class Bad(FreshBench):
            def luck(self) -> float:
                servers = [c for c, _ in self.deployed]
                return 0.001 if servers[-1] == CURRENT and servers.count(CURRENT) <= bad else 1.0

        result = race(Bad({CURRENT: 1000.0, OTHER: 1001.0}), (990.0, 990.0))
        assert not result.better
        assert result.current.levels()[bad:] == pytest.approx([1000.0] * (12 - bad), rel=0.01)


class TestUnseen:
    """Where latency jumps over its bound, a capacity is anywhere between two loads."""

    @pytest.mark.parametrize(("above_us", "unseen"), [(50e3, 0.0), (4e6, math.log(1.08))])
    def test_only_latencies_near_their_bound_show_a_capacity(
        self, above_us: float, unseen: float
    ) -> None:
        points = [
            judge_point(SLOS, synthetic_measurement(level, p99_us))
            for level, p99_us in ((100.0, 5e3), (108.0, above_us))
        ]
        contender = Contender(Entrant(CURRENT, 104.0), [Round(tuple(points))])
        assert contender.side(rules()).unseen == pytest.approx(unseen)
        assert contender.side(rules(AT_300)).unseen == 0.0


class TestFarBetter:
    """Rounds beside a current config of a third of the capacity, which the search judged alike."""

    def race(self, bench: FreshBench, *, seen: float | None, missed: float) -> RoundsResult:
        """``seen`` and ``missed``: loads that the current config met and missed in the search."""
        point = None if seen is None else judge_point(SLOS, synthetic_server(seen, 2.0 * seen))
        current = Entrant(CURRENT, seen or missed, missed, point)
        finalists = [Entrant(OTHER, 1000.0), Entrant(THIRD, 1000.0)]
        return run_rounds(
            *(MeasuredOnce(bench), current, finalists, rules(), lambda: False, lambda *_: None)
        )

    @pytest.mark.parametrize("seen", [None, 95.0])
    def test_one_round_decides(self, seen: float | None) -> None:
        result = self.race(
            FreshBench({CURRENT: 100.0, OTHER: 1000.0, THIRD: 250.0}), seen=seen, missed=110.0
        )
        best, other = result.finalists
        assert (len(result.current.rounds), result.better, result.ratios) == (1, (best,), {})
        assert 100.0 < result.current.entrant.at_most < 150.0
        assert other.left is not None
        assert other.left.kind is ReasonKind.BEATEN

    def test_less_than_three_times_as_much_is_compared_by_more_rounds(self) -> None:
        bench = FreshBench({CURRENT: 300.0, OTHER: 1000.0, THIRD: 900.0})
        result = self.race(bench, seen=290.0, missed=310.0)
        assert len(result.current.rounds) >= 3
        assert OTHER in result.ratios

    @pytest.mark.parametrize(("seen", "missed"), [(900.0, 1100.0), (None, 1100.0)])
    def test_a_search_that_disagrees_is_heard(self, seen: float | None, missed: float) -> None:
        """The current config met the SLOs at a higher load, or missed none below the finalist's."""
        bench = FreshBench({CURRENT: 100.0, OTHER: 1000.0, THIRD: 1000.0})
        assert len(self.race(bench, seen=seen, missed=missed).current.rounds) >= 3

    def test_other_programs_beside_the_current_config_decide_nothing(self) -> None:
        class Beside(FreshBench):
            def reading(self, level: float, seed: int) -> Measurement:
                measured = super().reading(level, seed)
                busy = 30.0 if self.candidate == CURRENT else 0.0
                return replace(measured, host=HostUse(other_cpu_percent=busy))

        bench = Beside({CURRENT: 100.0, OTHER: 1000.0, THIRD: 1000.0})
        result = self.race(bench, seen=95.0, missed=110.0)
        assert len(result.current.rounds) >= 3
        assert not result.better


def test_rounds_that_cannot_be_compared_tell_no_gain() -> None:
    result = race(FreshBench({CURRENT: 100.0, OTHER: 100.0}), (100.0, 100.0))
    unknown = replace(result, ratios={OTHER: Ratio(1.1, 0.0, math.inf)})
    assert gain_of(unknown, unknown.finalists[0], rules()) is None


@settings(deadline=None)
@given(st.integers(2, 6))
def test_in_turn_each_side_has_each_place_as_often_as_the_others(count: int) -> None:
    sides: list[Any] = [object() for _ in range(count)]
    places = [[in_turn(sides, number).index(side) for number in range(2 * count)] for side in sides]
    assert {tuple(sorted(p)) for p in places} == {tuple(sorted([*range(count)] * 2))}


class Drifting(FreshBench):
    """Each server is slower than the last by the same share, as a machine that warms up."""

    def luck(self) -> float:
        return 0.99 ** len(self.deployed)


@pytest.mark.parametrize("finalists", [1, 2])
def test_a_steady_drift_of_the_machine_favours_none(finalists: int) -> None:
    bench = Drifting({CURRENT: 1000.0, OTHER: 1000.0, THIRD: 1000.0}, weather=0.0)
    result = race(bench, (1000.0,) * (1 + finalists))
    assert len(result.current.rounds) >= 3
    for ratio in result.ratios.values():
        assert ratio.estimate == pytest.approx(1.0, abs=0.01)


class TestLeaving:
    def test_one_that_misses_its_slos_when_measured_again_leaves(self) -> None:
        result = race(FreshBench({CURRENT: 100.0, OTHER: 0.5, THIRD: 200.0}), (98, 1000, 196))
        gone, better = result.finalists
        assert gone.left
        assert result.better == (better,)
        assert len(gone.rounds) == 3

    @pytest.mark.parametrize("bad", [1, 2, 3])
    def test_one_miss_of_three_may_be_chance_and_two_are_not(self, bad: int) -> None:
        class Unlucky(FreshBench):
            def luck(self) -> float:
                servers = [c for c, _ in self.deployed]
                return 0.5 if servers[-1] == OTHER and servers.count(OTHER) <= bad else 1.0

        result = race(Unlucky({CURRENT: 310.0, OTHER: 400.0}), (300.0, 300.0), rules(AT_300))
        (finalist,) = result.finalists
        assert bool(finalist.left) is (bad > 1)
        assert result.no_gain is (bad == 1)  # at a listed load both answer it all

    @pytest.mark.parametrize(
        ("error", "no_gain"),
        [
            (ClientLimitError("it sent 800/s"), False),
            (LoadFailedError("no results by the deadline"), False),
            (ModelFailsError("negative input"), True),
        ],
    )
    def test_a_finalist_that_could_not_be_measured_may_be_better_for_all_that_is_known(
        self, error: TrialError, *, no_gain: bool
    ) -> None:
        class Trouble(FreshBench):
            def reading(self, level: float, seed: int) -> Measurement:
                if self.candidate == OTHER:
                    raise error
                return super().reading(level, seed)

        result = race(Trouble(lambda _: 100.0), (98, 980, 98))
        assert result.finalists[0].left == error.reason
        assert ratio_of(result, THIRD).high < 1.1
        assert result.no_gain is no_gain


class TestLimits:
    """The load generator sends less than a config may sustain."""

    def test_a_finalist_that_sustains_all_that_can_be_sent_is_never_without_gain(self) -> None:
        result = race(FreshBench({CURRENT: 990.0, OTHER: 5000.0}, sends=1000.0), (990, 990))
        assert result.finalists[0].limited
        assert math.isinf(ratio_of(result).high)
        assert (result.better, result.no_gain) == ((), False)
        assert len(result.current.rounds) == 12

    def test_it_is_better_where_it_surely_sustains_more(self) -> None:
        result = race(FreshBench({CURRENT: 500.0, OTHER: 5000.0}, sends=1000.0), (490, 2000))
        assert result.better == result.finalists
        assert ratio_of(result).low > 1.5

    def test_none_is_better_than_a_current_config_that_sustains_all_that_can_be_sent(self) -> None:
        bench = FreshBench({CURRENT: 5000.0, OTHER: 6000.0}, sends=1000.0, weather=0.0)
        result = race(bench, (900, 2000))
        assert result.current.limited
        assert ratio_of(result).estimate == pytest.approx(1.0)
        assert (result.better, result.no_gain) == ((), False)


class TestTime:
    def test_the_spec_says_how_many_rounds_there_are_at_most(self) -> None:
        bench = FreshBench({CURRENT: 1000.0, OTHER: 1040.0}, noise=0.05, seed=1)
        assert len(race(bench, (1000, 1040), rules(rounds=4)).current.rounds) == 4


class TestServers:
    """A server that dies is started again, once."""

    class Dying(FreshBench):
        deaths: tuple[int, ...] = ()

        def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
            point = super().measure(level, seed, least_s)
            if len(self.loads) in self.deaths:
                raise ServerGoneError("it died")
            return point

    def run(self, *deaths: int) -> tuple[Dying, RoundsResult, list[Repeat]]:
        bench, rows = self.Dying({CURRENT: 500.0, OTHER: 700.0}), list[Repeat]()
        bench.deaths = deaths
        return bench, race(bench, (490, 690), rows=rows), rows

    def test_the_round_of_one_that_dies_begins_anew(self) -> None:
        _, expected, rows = self.run()
        for dies_in in range(1, len(rows) + 1):
            bench, result, again = self.run(dies_in)
            assert again == rows
            assert vars(ratio_of(result)) == vars(ratio_of(expected))
            assert len(bench.deployed) == 7

    def test_a_finalist_whose_servers_die_twice_in_a_round_leaves(self) -> None:
        _, _, rows = self.run()
        last = max(n for n, row in enumerate(rows, 1) if row.role is Role.CANDIDATE)
        _, result, _ = self.run(last, last + 2)
        assert result.finalists[0].left == said("it died")
        assert (result.better, result.no_gain) == ((), False)
        with pytest.raises(ServerGoneError):
            self.run(1, 2)  # those of the current config


def test_configs_are_compared_at_their_listed_loads() -> None:
    rows: list[Repeat] = []
    plan = LoadPlan(Arrivals.POISSON, (200.0, 400.0), RATES)
    result = race(
        FreshBench({CURRENT: 220.0, OTHER: 450.0}), (200.0, 400.0), rules(plan), rows=rows
    )
    assert {(r.role, r.point.level) for r in rows} == {
        (Role.CURRENT, 200.0),
        (Role.CANDIDATE, 400.0),
    }
    assert ratio_of(result).estimate == pytest.approx(2.0)
    assert result.better


class TestListedLoad:
    """The current config misses an SLO at the one load of the spec."""

    def test_equal_config_at_the_bound_is_not_better_by_chance(self) -> None:
        """Of two equal configs, either one may miss the bound in most rounds."""

        class AtTheBound(FreshBench):
            def reading(self, level: float, seed: int) -> Measurement:
                return synthetic_measurement(level, 40e3 / self.serves)

        better = 0
        for luck in range(60):
            bench = AtTheBound({CURRENT: 1.0, OTHER: 1.0, THIRD: 1.0}, noise=0.06, seed=luck)
            result = race(bench, (300.0,) * 3, rules(AT_300))
            better += bool(result.better)
            assert not (result.better and result.no_gain)
        assert better <= 2  # 2.5% of 60 are 1.5; 12 by majorities alone

    def test_config_that_meets_what_the_current_one_misses_by_far_is_better_after_few_rounds(
        self,
    ) -> None:
        bench = FreshBench({CURRENT: 200.0, OTHER: 310.0}, noise=0.02)
        result = race(bench, (300.0, 300.0), rules(AT_300))
        assert result.better == result.finalists
        assert len(result.current.rounds) == 3

    def test_not_known_says_in_how_many_rounds_each_met_the_slos(self) -> None:
        class Rounds(FreshBench):
            def reading(self, level: float, seed: int) -> Measurement:
                misses = self.candidate == CURRENT and (seed - FIRST_SEED) % 3 != 2
                return synthetic_measurement(level, 41e3 if misses else 39e3)

        result = race(Rounds({CURRENT: 1.0, OTHER: 1.0}), (300.0, 300.0), rules(AT_300))
        assert (result.better, result.no_gain) == ((), False)
        reason = why(result, result.finalists[0], rules(AT_300))
        assert reason.facts == {"rounds": 12, "rounds_met": 12, "current_met": 4}

    def test_error_that_only_the_current_config_makes_counts_whatever_its_latency(self) -> None:
        class Failing(FreshBench):
            def reading(self, level: float, seed: int) -> Measurement:
                failed = 10 if self.candidate == CURRENT else 0
                return synthetic_measurement(level, 20e3, failed=failed)

        result = race(Failing({CURRENT: 1.0, OTHER: 1.0}), (300.0, 300.0), rules(AT_300))
        assert result.better == result.finalists


class Clients(FreshBench):
    """A closed loop: in time up to its capacity; what they get rises less than the clients."""

    def reading(self, level: float, seed: int) -> Measurement:
        capacity = self.serves * self.kindness(seed)
        served = 30.0 * self.serves * (level / self.serves) ** 0.7
        p99_us = 40e3 * level / capacity
        return synthetic_measurement(level, p99_us, served=served, arrivals=Arrivals.CLOSED)


def test_clients_are_integers_and_throughput_is_the_score() -> None:
    bench = Clients({CURRENT: 8.4, OTHER: 12.3}, arrivals=Arrivals.CLOSED, noise=0.01)
    result = race(bench, (8, 12), rules(LoadPlan(Arrivals.CLOSED, None, CLIENTS)))
    assert all(a.level == round(a.level) for a in bench.loads)
    assert ratio_of(result).estimate == pytest.approx(12.3 / 8.4, rel=0.04)
    assert result.better


def test_a_minimised_metric_is_better_where_it_is_less_at_the_load_of_the_spec() -> None:
    class Latencies(FreshBench):
        def reading(self, level: float, seed: int) -> Measurement:
            assert level == 300.0
            return synthetic_measurement(level, self.serves * 1000)

    result = race(
        Latencies({CURRENT: 30.0, OTHER: 15.0}, noise=0.01), (300, 300), rules(AT_300, LATENCY)
    )
    assert ratio_of(result).estimate == pytest.approx(2.0, rel=0.05)
    assert result.better


def test_a_finalist_whose_metric_a_round_did_not_read_leaves_with_that_reason() -> None:
    class Memory(FreshBench):
        def reading(self, level: float, seed: int) -> Measurement:
            unread = self.candidate == OTHER and seed >= FIRST_SEED + 3
            return synthetic_measurement(level, gpu_memory=None if unread else int(self.serves))

    bench = Memory({CURRENT: 1000.0, OTHER: 970.0}, noise=0.03)
    result = race(bench, (300, 300), rules(AT_300, MEMORY))
    (gone,) = result.finalists
    assert "gpu_memory" in texts([gone.left])[0]
    assert len(gone.readings(rules(AT_300, MEMORY))) == len(gone.rounds) == 3


def measured(measure: Callable[[float], Point], expected: float, levels: LevelRange) -> Contender:
    """One round of a config about which only that is known."""

    class OneConfig(FreshBench):
        def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
            return measure(level)

    plan = replace(SEARCHED, levels=levels)
    one = Contender(Entrant(OTHER, expected))
    measure_round(MeasuredOnce(OneConfig({OTHER: 1.0})), one, rules(plan), 0, Role.CANDIDATE)
    return one


def levels_of(one: Contender) -> list[float]:
    return [p.level for r in one.rounds for p in r.points]


def rising(capacity: float, power: float = 8.0) -> Callable[[float], Point]:
    """The bound is used up by this power of the load; no load saturates it."""

    def measure(level: float) -> Point:
        return judge_point(SLOS, synthetic_measurement(level, 40e3 * (level / capacity) ** power))

    return measure


def waiting(saturation: float, base: float) -> Callable[[float], Point]:
    """Capacity 100: latency as of M/M/1 over a base; overloaded it grows in the window."""
    wait = (1.0 - base) * (1.0 - 100.0 / saturation)

    def measure(level: float) -> Point:
        stress = 1.0 + 40.0 * (level / saturation - 0.97)
        if level < saturation:
            steady = base + wait / (1.0 - level / saturation)
            stress = steady if level < 0.99 * saturation else min(steady, max(stress, 1.0 + 1e-9))
        served = min(level, saturation)
        return judge_point(SLOS, synthetic_measurement(level, 40e3 * stress, served=served))

    return measure


def limited_to(most: float, measure: Callable[[float], Point]) -> Callable[[float], Point]:
    def sent(level: float) -> Point:
        if level > most:
            raise ClientLimitError("it could not keep up", sent_per_s=most)
        return measure(level)

    return sent


class TestLoads:
    """Of one round of one config."""

    @settings(deadline=None)
    @given(st.floats(1.0, 1e4), st.floats(0.02, 50.0), st.floats(1.0, 20.0), st.booleans())
    def test_there_are_few_and_no_load_twice_and_the_capacity_lies_where_they_say(
        self, capacity: float, times: float, power: float, saturates: bool
    ) -> None:
        def saturating(level: float) -> Point:
            return judge_point(SLOS, synthetic_server(level, capacity))

        measure = saturating if saturates else rising(capacity, power)
        one = measured(measure, capacity * times, RATES)
        levels = levels_of(one)
        assert len(levels) == len(set(levels)) <= MOST_LOADS
        (round_,) = one.rounds
        passed = [p.level for p in round_.points if p.passed]
        failed = [p.level for p in round_.points if not p.passed]
        if passed and failed:
            assert one.levels()[0] == pytest.approx(capacity, rel=0.06)
        assert all(p <= capacity * (1 + 1e-9) for p in passed)

    @pytest.mark.parametrize(
        ("capacity", "expected"), [(3.0, [3, 4]), (2.0, [3, 2]), (1.0, [3, 2, 1])]
    )
    def test_clients_are_one_more_or_less_at_the_least(
        self, capacity: float, expected: list[float]
    ) -> None:
        def clients(level: float) -> Point:
            p99_us = 40e3 * level / capacity
            one = synthetic_measurement(level, p99_us, served=level, arrivals=Arrivals.CLOSED)
            return judge_point(SLOS, one)

        assert levels_of(measured(clients, 3.0, CLIENTS)) == expected

    def test_beyond_what_can_be_sent_a_round_ends_there(self) -> None:
        for expected in (100.0, 300.0):
            one = measured(limited_to(100.0, rising(500.0)), expected, RATES)
            assert one.limited
            assert one.levels() == [max(levels_of(one))]
            assert max(levels_of(one)) <= 100.0
        assert not measured(limited_to(100.0, rising(50.0)), 50.0, RATES).limited

    def test_a_load_above_a_pass_from_which_no_result_comes_was_too_much(self) -> None:
        def drowning(level: float) -> Point:
            if level > 100.0:
                raise LoadFailedError("no results by the deadline")
            return rising(110.0)(level)

        one = measured(drowning, 100.0, RATES)
        assert levels_of(one) == [96.0]
        assert 96.0 < one.levels()[0] < 104.0
        with pytest.raises(LoadFailedError):
            measured(drowning, 200.0, RATES)

    def test_without_enough_answers_a_round_ends_without_a_pass(self) -> None:
        def few(level: float) -> Point:
            return judge_point([P99_40MS], synthetic_measurement(level, 30e3, count=100))

        one = measured(few, 100.0, RATES)
        assert levels_of(one) == [96.0]
        assert not one.rounds[0].sustained.passed


class TestShapes:
    """Equal configs whose latency rises in different ways have equal capacities."""

    SHAPES = (
        *(rising(100.0, power) for power in (2.0, 4.0, 8.0, 12.0)),
        *(waiting(100.0 * s, base) for s in (1.02, 1.05, 1.1, 1.2) for base in (0.0, 0.3)),
    )

    @staticmethod
    def mean_capacity(measure: Callable[[float], Point]) -> tuple[float, float]:
        """Capacity and measurements of a round, mean over where it begins."""
        rounds = [measured(measure, 100.0 * (0.97 + 0.005 * n), RATES) for n in range(13)]
        loads = sum(len(levels_of(r)) for r in rounds)
        return geometric_mean([r.levels()[0] for r in rounds]), loads / len(rounds)

    def test_their_capacities_differ_by_a_percent_at_the_most(self) -> None:
        levels = [self.mean_capacity(shape)[0] for shape in self.SHAPES]
        assert max(levels) / min(levels) < 1.011
        assert geometric_mean(levels) == pytest.approx(100.0, rel=0.006)

    def test_a_third_measurement_is_made_only_where_the_shape_matters(self) -> None:
        assert self.mean_capacity(rising(100.0, 4.0))[1] == 2.0
        assert 2.0 < self.mean_capacity(waiting(105.0, 0.3))[1] <= 3.0


def contender(*rounds: Sequence[Point]) -> Contender:
    return Contender(Entrant(OTHER, 100.0), [Round(tuple(points)) for points in rounds])


def beside_others(point: Point) -> Point:
    disturbances = ("Other processes took 40% of the machine's CPU meanwhile (limit 5%).",)
    return replace(point, measurement=replace(point.measurement, disturbances=disturbances))


class TestExpectedLevel:
    """Where a next round begins; the search found 100/s."""

    LOW = tuple(rising(30.0)(level) for level in (29.0, 31.0))
    HIGH = tuple(rising(98.0)(level) for level in (96.0, 104.0))

    def test_result_equals_that_of_calm_rounds(self) -> None:
        assert contender(self.HIGH).expected_level() == pytest.approx(98.0, rel=0.01)
        assert contender(self.LOW).expected_level() == pytest.approx(30.0, rel=0.02)

    def test_a_round_beside_a_disturbance_does_not_lead_the_next_one_far_down(self) -> None:
        low = [*map(beside_others, self.LOW)]
        assert contender(low).expected_level() == pytest.approx((30.0 * 100.0) ** 0.5, rel=0.02)
        assert contender(low, self.HIGH).expected_level() == pytest.approx(98.0, rel=0.01)


class TestReadings:
    def test_of_rates_it_is_the_load_in_inferences(self) -> None:
        points = [rising(100.0)(level) for level in (96.0, 104.0)]
        batches = [replace(p, measurement=replace(p.measurement, batch_size=4)) for p in points]
        assert contender(batches).readings(rules()) == pytest.approx([400.0], rel=5e-3)

    @staticmethod
    def clients(capacity: float, level: float) -> Point:
        one = synthetic_measurement(
            level, 40e3 * level / capacity, served=30.0 * level**0.5, arrivals=Arrivals.CLOSED
        )
        return judge_point(SLOS, one)

    @pytest.mark.parametrize(
        ("capacity", "levels", "served"),
        [
            (10.5, (10.0, 11.0), 30.0 * 10.5**0.5),  # between what both served
            (64.0, (10.0, 20.0), 30.0 * 20.0**0.5),  # none failed: what the highest served
            (0.5, (2.0, 1.0), 30.0),  # none passed: what the lowest served
        ],
    )
    def test_of_clients_it_is_what_was_served_at_the_capacity(
        self, capacity: float, levels: tuple[float, ...], served: float
    ) -> None:
        one = contender([self.clients(capacity, level) for level in levels])
        assert one.readings(rules()) == pytest.approx([served], rel=2e-3)

    def test_of_clients_the_best_may_be_fewer(self) -> None:
        def fewer_get_more(level: float) -> Point:
            served = 1184.0 - 5.0 * level
            one = synthetic_measurement(
                level, 40e3 * level / 80.0, served=served, arrivals=Arrivals.CLOSED
            )
            return judge_point(SLOS, one)

        measured_round = measured(fewer_get_more, 56.0, CLIENTS)
        assert measured_round.points[0].level == min(levels_of(measured_round))
        assert measured_round.readings(rules()) == [1184.0 - 5.0 * min(levels_of(measured_round))]

    def test_a_latency_of_less_is_more(self) -> None:
        one = judge_point(SLOS, synthetic_measurement(300.0, 10e3))
        two = judge_point(SLOS, synthetic_measurement(300.0, 20e3))
        assert contender([one], [two]).readings(rules(AT_300, LATENCY)) == [1 / 10e3, 1 / 20e3]

    @pytest.mark.parametrize("unread", [None, 0])
    def test_a_metric_is_read_in_every_round_or_there_is_no_result(
        self, unread: int | None
    ) -> None:
        read, not_read = (
            judge_point(SLOS, synthetic_measurement(300.0, gpu_memory=m)) for m in (5, unread)
        )
        assert contender([read]).readings(rules(AT_300, MEMORY)) == [1 / 5]
        with pytest.raises(TrialError, match="gpu_memory"):
            contender([read], [not_read]).readings(rules(AT_300, MEMORY))
