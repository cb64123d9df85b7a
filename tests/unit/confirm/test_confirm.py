from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import geometric_mean

import pytest
from builders.candidates import candidate_of
from builders.emulated import FreshBench as EmulatedBench
from builders.measurements import synthetic_measurement

from tuner.confirm.confirm import (
    BEHIND,
    Confirmation,
    Outcome,
    Rules,
    confirm,
)
from tuner.confirm.gain import OUTCLASSED, InterimAnalyses
from tuner.confirm.rounds import Entrant, Row
from tuner.errors import (
    ClientLimitError,
    LoadFailedError,
    ModelFailsError,
    ServerGoneError,
    TrialError,
)
from tuner.measurement.measurement import Measurement
from tuner.run.confirmation import Role
from tuner.score.capacity import LevelRange
from tuner.score.judge import passes
from tuner.score.point import Point
from tuner.score.ratio import ERROR, paired_ratio
from tuner.space.candidate import Candidate
from tuner.spec.metrics import GPU_MEMORY, P99_LATENCY
from tuner.spec.slo import Goal, Objective

CURRENT = candidate_of({"instance_group.count": 1})
OTHER = candidate_of({"instance_group.count": 2})
THIRD = candidate_of({"instance_group.count": 3})
ROUNDS = 3
#: Of the interval at the first look.
FIRST_ERROR = InterimAnalyses.of_confirmation(ROUNDS).error(ROUNDS)


def rules(
    rows: list[Row] | None = None,
    levels: LevelRange | None = LevelRange(1, 1e5),  # noqa: B008
    objective: Objective | None = None,
) -> Rules:
    kept = [] if rows is None else rows
    goal = objective or Objective.goodput()
    return Rules(goal, levels, ROUNDS, 0.02, 100, kept.append)


def duel(
    bench: EmulatedBench, current: float | None, finalist: float, rows: list[Row] | None = None
) -> Confirmation:
    (result,) = confirm(bench, Entrant(CURRENT, current), [Entrant(OTHER, finalist)], rules(rows))
    return result


def test_a_much_better_config_is_confirmed_with_its_interval() -> None:
    result = duel(EmulatedBench({CURRENT: 100, OTHER: 1000}, noise=0.01), 98, 980)
    assert result.outcome is Outcome.CONFIRMED
    assert result.ratio.low < 10 < result.ratio.high
    assert result.ratio.estimate == pytest.approx(10, rel=0.03)


def test_three_take_turns_in_each_place_on_fresh_servers() -> None:
    bench = EmulatedBench({CURRENT: 500, OTHER: 1000, THIRD: 1010})
    confirm(bench, Entrant(CURRENT, 490), [Entrant(OTHER, 980), Entrant(THIRD, 990)], rules())
    order = [c for c, _ in bench.deployed]
    assert order == [CURRENT, OTHER, THIRD, OTHER, THIRD, CURRENT, THIRD, CURRENT, OTHER]


def test_every_measurement_is_recorded_in_its_place() -> None:
    rows: list[Row] = []
    duel(EmulatedBench({CURRENT: 500, OTHER: 1000}), 490, 980, rows)
    assert {r.round for r in rows} == {0, 1, 2}
    for number in range(ROUNDS):
        assert [r.order for r in rows if r.round == number] == list(
            range(sum(r.round == number for r in rows))
        )
    firsts = [r.role for r in rows if r.order == 0]
    assert firsts == [Role.CURRENT, Role.CANDIDATE, Role.CURRENT]


class Dying(EmulatedBench):
    """The server dies in the measurements with these numbers."""

    deaths: tuple[int, ...] = ()

    def measure(self, level: float, seed: int, least_s: float = 0.0) -> Point:
        point = super().measure(level, seed, least_s)
        if len(self.asked) in self.deaths:
            raise ServerGoneError("the server is gone")
        return point


def test_a_server_that_dies_in_a_round_is_started_again_and_the_round_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last measurement of all ends in the crash; the round's first one is made again too."""
    bench, rows = Dying({CURRENT: 500, OTHER: 700}), list[Row]()
    duel(bench, 490, 690, rows)
    dying, again = Dying({CURRENT: 500, OTHER: 700}), list[Row]()
    dying.deaths = (len(rows),)
    assert duel(dying, 490, 690, again).outcome is Outcome.CONFIRMED
    assert [r.point.level for r in again] == [r.point.level for r in rows]
    assert dying.deployed == [*bench.deployed, bench.deployed[-1]]
    assert caplog.messages == ["round 3: the server is gone"]

    twice = Dying({CURRENT: 500, OTHER: 700})
    twice.deaths = (len(rows), len(rows) + 2)
    assert duel(twice, 490, 690).reason == "the server is gone"


def test_a_round_has_the_same_arrivals_for_all_and_the_next_one_other_arrivals() -> None:
    bench = EmulatedBench({CURRENT: 100, OTHER: 1000, THIRD: 1010})
    rows: list[Row] = []
    confirm(bench, Entrant(CURRENT, 98), [Entrant(OTHER, 980), Entrant(THIRD, 990)], rules(rows))
    of_round = [{r.point.measurement.seed for r in rows if r.round == n} for n in range(ROUNDS)]
    assert of_round == [{100}, {101}, {102}]


@pytest.mark.parametrize("seed", range(40))
def test_the_same_capacity_under_another_name_is_never_confirmed(seed: int) -> None:
    bench = EmulatedBench({CURRENT: 1000, OTHER: 1000}, noise=0.01, seed=seed, weather=0.1)
    # The search was lucky with the one and unlucky with the other.
    assert duel(bench, 940, 1010).outcome is not Outcome.CONFIRMED


def test_a_true_gain_of_five_percent_is_seen_through_the_noise() -> None:
    outcomes = [
        duel(
            EmulatedBench({CURRENT: 1000, OTHER: 1050}, noise=0.008, seed=seed, weather=0.1),
            1000,
            1040,
        ).outcome
        for seed in range(40)
    ]
    assert outcomes.count(Outcome.CONFIRMED) >= 38


def test_what_the_first_look_leaves_open_gets_as_many_rounds_again() -> None:
    rows: list[Row] = []
    capacities = {CURRENT: 1000.0, OTHER: 1035.0}
    duel(EmulatedBench(capacities, noise=0.01, seed=3), 1000, 1030, rows)
    assert {r.round for r in rows} == set(range(ROUNDS + ROUNDS))


def test_the_current_config_is_measured_in_one_round_when_the_gain_is_tenfold() -> None:
    rows: list[Row] = []
    result = duel(EmulatedBench({CURRENT: 100, OTHER: 1000}, noise=0.01), 98, 980, rows)
    assert [r.round for r in rows if r.role is Role.CURRENT] == [0, 0]
    assert {r.round for r in rows if r.role is Role.CANDIDATE} == {0, 1, 2}
    assert result.gain.rounds == (3, 1)
    assert result.reason == (
        "every SLO met in each of 3 rounds; the current config, more than 3 times behind, was "
        "measured in 1 of them"
    )


def test_a_current_config_far_behind_is_measured_roughly() -> None:
    """Its search saw less than it sustains: in small steps it took five measurements."""
    counts = {}
    for gain in (2.0, 10.0):
        rows: list[Row] = []
        duel(EmulatedBench({CURRENT: 120, OTHER: 100 * gain}, noise=0.001), 100, 98 * gain, rows)
        counts[gain] = sum(r.role is Role.CURRENT and r.round == 0 for r in rows)
    assert counts[10.0] == 3
    assert counts[2.0] > 3


def test_of_one_round_of_the_current_config_the_interval_still_holds_the_true_gain() -> None:
    # Arrivals and servers that move a capacity by 8 %: what a hundred requests a second show.
    held = 0
    for seed in range(40):
        bench = EmulatedBench({CURRENT: 100, OTHER: 1000}, noise=0.08, seed=seed)
        ratio = duel(bench, 98, 980).ratio
        held += ratio.low < 10.0 < ratio.high
        assert ratio.low > 2.0
    assert held >= 38


@pytest.mark.parametrize(("current", "searched"), [(500, 490), (900, 100), (100, 900)])
def test_rounds_go_on_for_a_current_config_that_search_and_round_do_not_both_see_far_behind(
    current: float, searched: float
) -> None:
    rows: list[Row] = []
    duel(EmulatedBench({CURRENT: current, OTHER: 1000}), searched, 980, rows)
    assert {r.round for r in rows if r.role is Role.CURRENT} >= {0, 1, 2}


def test_the_interval_of_a_gain_is_wide_enough_for_all_looks() -> None:
    result = duel(EmulatedBench({CURRENT: 500, OTHER: 1000}, noise=0.01), 490, 980)
    own, current = result.own.capacities(), result.current.capacities()
    assert result.ratio == paired_ratio(own, current, FIRST_ERROR)


def test_what_is_clear_at_the_first_look_ends_there() -> None:
    for other in (1000.0, 1200.0):
        rows: list[Row] = []
        duel(EmulatedBench({CURRENT: 1000, OTHER: other}, noise=0.001), 1000, other, rows)
        assert {r.round for r in rows} == set(range(ROUNDS))


def test_near_the_expected_capacity_two_measurements_a_round_are_enough() -> None:
    rows: list[Row] = []
    duel(EmulatedBench({CURRENT: 500, OTHER: 1000}), 500, 1000, rows)
    assert len(rows) == ROUNDS * 2 * 2


def test_a_finalist_that_was_lucky_is_confirmed_at_the_load_it_stands() -> None:
    result = duel(EmulatedBench({CURRENT: 100, OTHER: 1000}, noise=0.01), 98, 1300)
    assert result.outcome is Outcome.CONFIRMED
    assert 930 < result.level <= 1000
    assert all(passes(p.slo) for p in result.points)
    assert result.level == min(p.measurement.load.level for p in result.points)


def test_a_finalist_that_stands_nothing_again_is_not_feasible() -> None:
    result = duel(EmulatedBench({CURRENT: 100, OTHER: 0.5}), 98, 1000)
    assert result.outcome is Outcome.NOT_FEASIBLE


def test_a_finalist_worse_than_the_current_config_costs_one_round() -> None:
    rows: list[Row] = []
    result = duel(EmulatedBench({CURRENT: 900, OTHER: 700}), 890, 1000, rows)
    assert result.outcome is Outcome.NOT_BETTER
    assert {r.round for r in rows} == {0}


def test_of_two_finalists_the_one_far_behind_is_dropped() -> None:
    rows: list[Row] = []
    capacities = {CURRENT: 100.0, OTHER: 1000.0, THIRD: 1000 * BEHIND - 50}
    results = confirm(
        EmulatedBench(capacities),
        Entrant(CURRENT, 98),
        [Entrant(THIRD, 1010), Entrant(OTHER, 980)],
        rules(rows),
    )
    assert [r.outcome for r in results] == [Outcome.NOT_BETTER, Outcome.CONFIRMED]
    assert "another finalist" in results[0].reason
    assert {r.round for r in rows if r.candidate == THIRD} == {0}


def test_a_finalist_that_cannot_be_deployed_again_drops_out_and_the_others_go_on() -> None:
    results = confirm(
        EmulatedBench({CURRENT: 100, OTHER: 1000}),
        Entrant(CURRENT, 98),
        [Entrant(THIRD, 1010), Entrant(OTHER, 980)],
        rules(),
    )
    assert [r.outcome for r in results] == [Outcome.NOT_FEASIBLE, Outcome.CONFIRMED]
    assert results[0].reason == "out of memory"
    assert (results[0].level, results[0].points, results[0].ratio) == (0.0, (), None)


def test_a_finalist_dropped_beside_one_that_cannot_be_measured_takes_its_place() -> None:
    class Limited(EmulatedBench):
        def reading(self, level: float, seed: int) -> Measurement:
            if self.candidate == OTHER and seed == self.seeds[0] + 2:
                raise ClientLimitError("it sent 90/s")
            return super().reading(level, seed)

    rows: list[Row] = []
    bench = Limited({CURRENT: 400.0, OTHER: 1000.0, THIRD: 800.0})
    finalists = [Entrant(OTHER, 980), Entrant(THIRD, 790)]
    left, back = confirm(bench, Entrant(CURRENT, 390), finalists, rules(rows))
    assert left.outcome is Outcome.NOT_MEASURED
    assert back.outcome is Outcome.CONFIRMED
    assert back.ratio.estimate == pytest.approx(2, rel=0.03)
    # in the rounds that it missed it had the arrivals of the others
    seeds = {
        c: {r.point.measurement.seed for r in rows if r.candidate == c} for c in bench.capacity
    }
    assert seeds[THIRD] == seeds[CURRENT]
    assert [r.round for r in rows if r.candidate == THIRD] == sorted([0, 1, 2] * 2)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ClientLimitError("it sent 800/s"), Outcome.NOT_MEASURED),
        (LoadFailedError("no export"), Outcome.NOT_MEASURED),
        (ModelFailsError("negative input"), Outcome.NOT_FEASIBLE),
    ],
)
def test_a_finalist_that_the_load_generator_cannot_measure_is_not_called_infeasible(
    error: TrialError, outcome: Outcome
) -> None:
    class Trouble(EmulatedBench):
        def reading(self, level: float, seed: int) -> Measurement:
            if self.candidate == OTHER:
                raise error
            return super().reading(level, seed)

    result = duel(Trouble({CURRENT: 100, OTHER: 1000}), 98, 980)
    assert (result.outcome, result.reason) == (outcome, error.message)


def test_a_current_config_that_cannot_be_deployed_again_ends_it() -> None:
    with pytest.raises(TrialError, match="out of memory"):
        duel(EmulatedBench({OTHER: 1000}), 98, 980)


def test_when_the_current_config_meets_no_slo_there_is_no_ratio() -> None:
    result = duel(EmulatedBench({OTHER: 1000}), None, 980)
    assert result.outcome is Outcome.CONFIRMED
    assert result.ratio is None
    assert result.current.points == ()


def test_a_current_config_that_meets_the_slos_nowhere_is_measured_once() -> None:
    """The search had only raced it, so that this comes out in the first round."""
    bench = EmulatedBench({CURRENT: 0.5, OTHER: 1000})
    current = Entrant(CURRENT, 900, sustained=False)
    (result,) = confirm(bench, current, [Entrant(OTHER, 980)], rules())
    assert result.outcome is Outcome.CONFIRMED
    assert result.ratio is None
    assert [c for c, _ in bench.deployed].count(CURRENT) == 1
    assert [c for c, _ in bench.deployed].count(OTHER) == ROUNDS


class BadServers(EmulatedBench):
    """The first few servers of the current config answer nearly nothing."""

    bad = 1

    def luck(self) -> float:
        servers = [c for c, _ in self.deployed]
        return 0.001 if servers[-1] == CURRENT and servers.count(CURRENT) <= self.bad else 1.0


def test_one_bad_server_of_the_current_config_proves_nothing() -> None:
    result = duel(BadServers({CURRENT: 1000, OTHER: 1001}), 990, 990)
    assert result.outcome is Outcome.NOT_BETTER
    assert result.ratio.estimate == pytest.approx(1.0, abs=0.01)


def test_where_the_current_config_stands_nothing_any_more_nothing_is_better() -> None:
    bench = BadServers({CURRENT: 1000, OTHER: 1001})
    bench.bad = 2
    result = duel(bench, 990, 990)
    assert result.outcome is Outcome.NOT_COMPARED
    assert "nothing to compare with" in result.reason
    assert [c for c, _ in bench.deployed].count(OTHER) == 1


class Drifting(EmulatedBench):
    """Each server is slower than the last by the same share, as a machine that warms up."""

    def luck(self) -> float:
        return 0.99 ** len(self.deployed)


@pytest.mark.parametrize("finalists", [1, 2])
def test_a_steady_drift_of_the_machine_favours_nobody(finalists: int) -> None:
    estimates = []
    for seed in (100, 101):
        bench = Drifting({CURRENT: 1000, OTHER: 1000, THIRD: 1000}, weather=0.0)
        entrants = [Entrant(OTHER, 980), Entrant(THIRD, 980)][:finalists]
        found = confirm(bench, Entrant(CURRENT, 980), entrants, replace(rules(), seed=seed))
        estimates += [r.ratio.estimate for r in found if r.ratio]
        if finalists == 2:  # as many rounds as sides: within a run
            assert estimates == pytest.approx([1.0] * len(estimates), abs=2e-3)
    assert geometric_mean(estimates) == pytest.approx(1.0, abs=1e-3)


def test_of_several_finalists_each_interval_is_wider() -> None:
    capacity = {CURRENT: 500, OTHER: 1000, THIRD: 990}
    entrants = [Entrant(OTHER, 980), Entrant(THIRD, 970)]
    two = confirm(EmulatedBench(capacity, noise=0.01), Entrant(CURRENT, 490), entrants, rules())
    own, current = two[0].own.capacities(), two[0].current.capacities()
    assert two[0].ratio == paired_ratio(own, current, FIRST_ERROR / 2)


def test_where_loads_are_listed_each_is_held_to_its_own() -> None:
    rows: list[Row] = []
    results = confirm(
        EmulatedBench({CURRENT: 220, OTHER: 450}),
        Entrant(CURRENT, 200),
        [Entrant(OTHER, 400)],
        rules(rows, levels=None),
    )
    assert {r.point.measurement.load.level for r in rows} == {200, 400}
    assert results[0].ratio.estimate == pytest.approx(2.0)


def test_a_minimised_metric_is_compared_at_its_load() -> None:
    objective = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")

    class Latencies(EmulatedBench):
        def reading(self, level: float, seed: int) -> Measurement:
            return synthetic_measurement(level, self.serves * 1000)

    results = confirm(
        Latencies({CURRENT: 30, OTHER: 15}, noise=0.01),
        Entrant(CURRENT, 300),
        [Entrant(OTHER, 300)],
        rules(levels=None, objective=objective),
    )
    assert results[0].outcome is Outcome.CONFIRMED
    assert results[0].ratio.estimate == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("unread", [None, 0])
def test_a_minimised_metric_that_a_round_did_not_read_gives_no_result(unread: int | None) -> None:
    memory = Objective(Goal.MINIMIZE, GPU_MEMORY, 300.0, "minimize gpu_memory at 300/s")

    class Memory(EmulatedBench):
        def reading(self, level: float, seed: int) -> Measurement:
            return synthetic_measurement(level, gpu_memory=100 if seed < 102 else unread)

    with pytest.raises(TrialError, match="gpu_memory was not measured in every round"):
        confirm(
            Memory({CURRENT: 1, OTHER: 1}),
            Entrant(CURRENT, 300),
            [Entrant(OTHER, 300)],
            rules(levels=None, objective=memory),
        )


@pytest.mark.parametrize(
    ("gain", "rounds"), [(0.985, ROUNDS), (1.005, ROUNDS), (1.013, ROUNDS + 1)]
)
def test_more_rounds_are_for_what_may_yet_be_worth_a_change(gain: float, rounds: int) -> None:
    """Noisy enough to leave it open; a gain below half of what is worth a change is hopeless."""
    factors = iter([1.0, gain * 0.97, gain, 1.0, 1.0, gain * 1.03] + [1.0, gain, gain, 1.0] * 3)

    class Wobbling(EmulatedBench):
        def luck(self) -> float:
            return next(factors)

    rows: list[Row] = []
    bench = Wobbling({CURRENT: 1000.0, OTHER: 1000.0}, weather=0.0)
    result = duel(bench, 1000, 1000, rows)
    assert {r.round for r in rows} == set(range(rounds))
    known = result.ratio.high < 1.02 or result.outcome is Outcome.CONFIRMED
    assert (result.outcome is Outcome.UNDECIDED) is not known


def test_what_the_rounds_rule_out_is_not_better_and_what_they_leave_open_is_not_known() -> None:
    for noise, outcome in ((0.0, Outcome.NOT_BETTER), (0.05, Outcome.UNDECIDED)):
        result = duel(EmulatedBench({CURRENT: 1000, OTHER: 1000}, noise=noise, seed=3), 980, 1000)
        assert result.outcome is outcome
        assert ("neither proves nor rules out" in result.reason) is (noise > 0.0)


@pytest.mark.parametrize(("better", "worse"), [([5, 5, 5], [5, 5, 5]), ([6.0], [4.0])])
def test_paired_ratio_of_equal_rounds_or_of_one_has_no_width(
    better: list[float], worse: list[float]
) -> None:
    ratio = paired_ratio(better, worse)
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx([better[0] / worse[0]] * 3)


def test_paired_ratio_widens_with_the_spread_and_with_the_looks() -> None:
    narrow = paired_ratio([10, 10.1, 9.9], [5, 5, 5])
    wide = paired_ratio([10, 14, 7], [5, 5, 5])
    twice = paired_ratio([10, 10.1, 9.9], [5, 5, 5], ERROR / 2)
    assert wide.high / wide.low > twice.high / twice.low > narrow.high / narrow.low > 1


def test_paired_ratio_agrees_with_the_t_interval_worked_by_hand() -> None:
    # logarithms 0.1, 0.2 and 0.3: mean 0.2, deviation 0.1; t(0.975, 2) = 4.302653
    half = 4.302653 * 0.1 / math.sqrt(3)
    found = paired_ratio([math.e**0.2, math.e**0.2, math.e**0.6], [math.e**0.1, 1, math.e**0.3])
    assert found.estimate == pytest.approx(math.exp(0.2))
    assert found.low == pytest.approx(math.exp(0.2 - half), rel=1e-6)
    assert found.high == pytest.approx(math.exp(0.2 + half), rel=1e-6)


def test_paired_ratio_refuses_unpaired_rounds() -> None:
    with pytest.raises(ValueError, match="as many"):
        paired_ratio([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="at least one"):
        paired_ratio([], [])


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = random.Random(1)
    held = 0
    for _ in range(400):
        pairs = [
            (1.05 * chance.lognormvariate(0, 0.01), chance.lognormvariate(0, 0.01))
            for _ in range(6)
        ]
        ratio = paired_ratio([a for a, _ in pairs], [b for _, b in pairs])
        held += ratio.low <= 1.05 <= ratio.high
    assert 0.92 * 400 <= held <= 0.98 * 400


class JobBeside(EmulatedBench):
    """A job takes a quarter of the machine beside one config, on these of its servers."""

    beside, servers = CURRENT, range(0)

    def reading(self, level: float, seed: int) -> Measurement:
        nth = sum(candidate == self.beside for candidate, _ in self.deployed)
        if self.candidate != self.beside or nth not in self.servers:
            return super().reading(level, seed)
        served, self.serves = self.serves, 0.75 * self.serves
        found = super().reading(level, seed)
        self.serves = served
        return replace(found, host=replace(found.host, other_cpu_percent=25.0))


@pytest.mark.parametrize("beside", [CURRENT, OTHER])
def test_a_round_with_a_job_beside_one_side_is_measured_again(beside: Candidate) -> None:
    bench = JobBeside({CURRENT: 1000, OTHER: 1200}, noise=0.002)
    bench.beside, bench.servers = beside, range(1, 2)
    result = duel(bench, 1000, 1150)
    assert result.gain.rounds == (3, 3)
    assert result.gain.ratio.estimate == pytest.approx(1.2, abs=0.02)
    assert len(bench.deployed) == 7


def test_a_round_with_a_job_beside_one_side_twice_does_not_count() -> None:
    bench = JobBeside({CURRENT: 1000, OTHER: 1200}, noise=0.002)
    bench.servers = range(2, 4)  # of the second round
    result = duel(bench, 1000, 1150)
    assert result.outcome is Outcome.CONFIRMED
    assert result.gain.rounds == (3, 3)
    assert result.gain.ratio.estimate == pytest.approx(1.2, abs=0.02)
    assert "in 1 of 4 rounds others took more" in result.reason
    assert "they do not count" in result.reason


@pytest.mark.parametrize(
    ("beside", "truth", "outcome"),
    [
        (CURRENT, 1.0, Outcome.UNDECIDED),
        (CURRENT, 1.5, Outcome.UNDECIDED),
        (CURRENT, 6.0, Outcome.CONFIRMED),
        (OTHER, 1.5, Outcome.CONFIRMED),  # it hides a gain and feigns none
    ],
)
def test_with_a_job_beside_one_side_in_each_round_only_more_than_it_explains_counts(
    beside: Candidate, truth: float, outcome: Outcome
) -> None:
    bench = JobBeside({CURRENT: 1000, OTHER: 1000 * truth}, noise=0.002)
    bench.beside, bench.servers = beside, range(100)
    result = duel(bench, 1000, 1000 * truth)
    assert result.outcome is outcome
    rounds = result.gain.rounds[0]
    assert f"in {rounds} of {rounds} rounds others took more" in result.reason
    assert "the interval allows for it" in result.reason


def test_a_job_beside_both_sides_spoils_no_pair() -> None:
    class Both(JobBeside):
        def reading(self, level: float, seed: int) -> Measurement:
            self.beside = self.candidate
            return super().reading(level, seed)

    bench = Both({CURRENT: 1000, OTHER: 1200}, noise=0.002)
    bench.servers = range(100)
    result = duel(bench, 1000, 1150)
    assert result.outcome is Outcome.CONFIRMED
    assert len(bench.deployed) == 2 * ROUNDS


class TestASlowCurrentConfigFarBehind:
    """Windows for a p99 hold 459 requests: at 0.8/s one takes ten minutes. Rates here are a hundred
    times those, with the lengths of windows that belong to slow ones.
    """

    def run(
        self, capacity: float, searched: float, finalist: float
    ) -> tuple[Confirmation, list[float]]:
        rows: list[Row] = []
        bench = EmulatedBench({CURRENT: capacity, OTHER: finalist}, noise=0.005)
        slow = replace(rules(rows, LevelRange(1, 1e5)), length_s=lambda level: 50e3 / level)
        (found,) = confirm(bench, Entrant(CURRENT, searched), [Entrant(OTHER, finalist)], slow)
        return found, [r.point.level for r in rows if r.role is Role.CURRENT]

    def test_it_is_measured_at_one_load_that_it_does_not_stand(self) -> None:
        found, asked = self.run(80, 76, 1000)
        assert asked == pytest.approx([114])
        assert found.outcome is Outcome.CONFIRMED
        assert found.gain.at_least
        assert found.gain.rounds == (3, 1)
        assert OUTCLASSED < found.ratio.low < found.ratio.estimate < 1000 / 80
        assert "only at a load it does not sustain" in found.reason

    def test_one_that_stands_it_is_measured_to_its_capacity(self) -> None:
        found, asked = self.run(200, 76, 1000)
        assert asked[0] == pytest.approx(114)
        assert len(asked) > 2
        assert not found.current.at_most
        assert found.ratio.low < 5.0 < found.ratio.high

    def test_one_that_is_not_so_far_behind_is_measured_to_its_capacity(self) -> None:
        found, asked = self.run(80, 76, 330)
        assert min(asked) < 80
        assert not found.current.at_most
