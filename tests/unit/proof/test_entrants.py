"""Which configs take part in the proof, what the search knows of them, and their low loads."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from builders.candidates import candidate_of
from builders.emulated import a_session
from builders.events import Watching
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server
from builders.messages_proofs import (
    FASTER,
    FASTER_SLOW,
    QUICK,
    SLOW,
    Jittery,
    Waiting,
    proved,
    trials_of,
)
from builders.proving import ProvingBench, prove, result, spec_of, trial
from builders.reasons import said, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.measurement.measurement import Arrivals, Measurement
from tuner.proof.entrants import (
    Entrant,
    ProofRules,
    at_low_loads,
    entrant_of,
    far_behind,
    finalists_of,
    nearest_of,
    slo_missed_at_low_load,
)
from tuner.record.status import Status
from tuner.score.capacity import LevelRange
from tuner.score.next_load import LoadPlan, load_plan
from tuner.score.point import Point, Score, judge_point, score_points
from tuner.score.saturation import FAR, Saturated
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec

SPEC = Spec.model_validate(
    {
        "model": "m",
        "repository": "r",
        "slo": ["p99_latency <= 40ms"],
        "space": {"instance_group.count": {"int": [1, 6]}},
    }
)
CURRENT, *OTHERS = (candidate_of({"instance_group.count": n}) for n in range(1, 7))
NEAR = 1.10


def at(level: float, stress: float) -> Point:
    return judge_point((P99_40MS, NO_ERRORS), synthetic_measurement(level, 40e3 * stress))


def tried(number: int, candidate: Candidate, state: TrialState, *points: Point) -> Trial:
    judged = points[:1] if state is TrialState.PRUNED else points
    return Trial(number, candidate, state, points, score_points(SPEC.objective, judged))


def numbers(*trials: Trial) -> list[int]:
    return [t.number for t in finalists_of(trials, SPEC, CURRENT, NEAR)]


MEASURED, PRUNED = TrialState.MEASURED, TrialState.PRUNED
NOW = tried(0, CURRENT, MEASURED, at(100, 0.95))
BEST = tried(1, OTHERS[0], MEASURED, at(200, 0.95), at(210, 1.3))


def test_two_finalists_are_two_where_one_lost_to_the_best_by_noise() -> None:
    far = tried(2, OTHERS[1], PRUNED, at(204, 1.4))
    near = tried(3, OTHERS[2], PRUNED, at(204, 1.09), at(200, 1.04))
    nearer = tried(4, OTHERS[3], PRUNED, at(204, 1.07), at(200, 1.01))
    assert numbers(NOW, BEST, far, near) == [1, 3]
    assert numbers(NOW, BEST, far, near, nearer) == [1, 4]


def test_what_was_once_measured_far_beyond_its_bound_is_no_near_miss() -> None:
    assert numbers(NOW, BEST, tried(2, OTHERS[1], PRUNED, at(204, 1.09), at(200, 1.2))) == [1]
    informative = tried(2, OTHERS[1], PRUNED, at(204, 1.5), at(150, 0.8))
    assert numbers(NOW, BEST, informative) == [1]


def test_one_that_nearly_sustained_what_is_worth_a_change_is_a_finalist() -> None:
    other = tried(2, OTHERS[1], MEASURED, at(101, 0.99))
    near = tried(1, OTHERS[0], MEASURED, at(102, 1.05), at(100, 0.93))
    assert numbers(NOW, near, other) == [1]
    missed = tried(1, OTHERS[0], MEASURED, at(102, 1.2), at(100, 0.93))
    assert numbers(NOW, missed, other) == [2]  # the best other one


def test_where_none_seems_better_the_best_other_one_takes_part() -> None:
    lost = tried(1, OTHERS[0], PRUNED, at(102, 1.05), at(100, 1.04))
    lost_by_more = tried(2, OTHERS[1], PRUNED, at(102, 1.5))
    assert numbers(NOW, lost_by_more, lost) == [1]
    assert numbers(NOW, lost_by_more, lost, tried(3, OTHERS[2], MEASURED, at(90, 0.9))) == [3]
    assert numbers(NOW) == []


def test_a_minimised_metric_that_is_less_by_enough_seems_better() -> None:
    spec = spec_of(objective="minimize p99_latency at 300/s")

    def one(number: int, p99_ms: float) -> Trial:
        points = (judge_point(spec.slos, synthetic_measurement(300.0, 1e3 * p99_ms)),)
        score = score_points(spec.objective, points)
        return Trial(number, [CURRENT, *OTHERS][number], MEASURED, points, score)

    trials = [one(0, 20.0), one(1, 19.8), one(2, 15.0), one(3, 10.0), one(4, 50.0)]
    assert [t.number for t in finalists_of(trials, spec, CURRENT, NEAR)] == [3, 2]
    assert [t.number for t in finalists_of(trials[:2], spec, CURRENT, NEAR)] == [1]


RULES = ProofRules(
    SPEC.objective, SPEC.slos, load_plan(SPEC.workload, SPEC.objective), SPEC.confirm, 100
)


def saturated_at(level: float, served: float) -> Point:
    return judge_point((P99_40MS, NO_ERRORS), synthetic_measurement(level, 4e6, served=served))


class TestEntrant:
    """What the search knows of a config."""

    def test_it_sustains_no_load_that_it_missed_nor_more_than_a_look_at_it_saturated(
        self,
    ) -> None:
        assert entrant_of(tried(0, CURRENT, MEASURED, at(100, 0.95)), RULES).at_most == math.inf
        missed = tried(0, CURRENT, MEASURED, at(100, 0.95), at(110, 1.3))
        assert entrant_of(missed, RULES).at_most == 110.0
        overloaded = tried(0, CURRENT, PRUNED, saturated_at(107, 35))
        looked_at = replace(overloaded, saturated=Saturated(45, 34.0, 35.0))
        assert entrant_of(looked_at, RULES).at_most == 35.0

    def test_what_it_answered_under_an_overload_of_an_open_loop_is_no_bound(self) -> None:
        """A server of 1,729/s answered 11/s of 3,788/s: its threads received requests."""
        overloaded = tried(0, CURRENT, PRUNED, saturated_at(3788, 11))
        assert entrant_of(overloaded, RULES).at_most == 3788.0
        assert not far_behind(entrant_of(overloaded, RULES), Entrant(OTHERS[0], 3714.0))

    def test_one_window_in_which_little_was_answered_is_not_all_it_can_answer(self) -> None:
        hiccup = tried(0, CURRENT, MEASURED, at(90, 0.95), saturated_at(100, 30))
        assert entrant_of(hiccup, RULES).at_most == 100.0
        assert not far_behind(entrant_of(hiccup, RULES), Entrant(OTHERS[0], 100.0))

    @settings(deadline=None)
    @given(st.floats(10.0, 1e4), st.lists(st.floats(0.1, 20.0), min_size=1, max_size=5))
    def test_what_it_is_said_to_sustain_at_most_is_never_less_than_it_does(
        self, capacity: float, shares: list[float]
    ) -> None:
        points = [judge_point(SPEC.slos, synthetic_server(s * capacity, capacity)) for s in shares]
        entrant = entrant_of(tried(0, CURRENT, MEASURED, *points), RULES)
        assert entrant.at_most >= capacity
        assert entrant.level > 0.0

    def test_it_is_expected_to_sustain_its_capacity_and_after_a_lost_race_less_than_that(
        self,
    ) -> None:
        both = tried(0, CURRENT, MEASURED, at(96, 0.9), at(104, 1.2))
        assert 96.0 < entrant_of(both, RULES).level < 104.0
        assert 50.0 < entrant_of(tried(0, CURRENT, PRUNED, at(100, 1.3)), RULES).level < 100.0

    def test_where_the_spec_lists_loads_it_is_that_which_it_sustained(self) -> None:
        rules = replace(RULES, plan=LoadPlan(Arrivals.POISSON, (100.0, 200.0), LevelRange(1, 1e5)))
        entrant = entrant_of(
            tried(0, CURRENT, MEASURED, at(100, 0.9), saturated_at(200, 120)), rules
        )
        assert (entrant.level, entrant.at_most) == (100.0, math.inf)

    def test_it_is_far_behind_once_three_times_as_much_would_be_no_more(self) -> None:
        behind, beaten = Entrant(CURRENT, 30.0, at_most=35.0), Entrant(OTHERS[0], 35.0 * FAR)
        assert far_behind(behind, beaten)
        assert not far_behind(behind, replace(beaten, level=104.0))
        assert not far_behind(replace(behind, at_most=math.inf), beaten)
        assert not far_behind(beaten, behind)

    def test_of_the_others_the_nearest_is_the_one_that_may_sustain_most(self) -> None:
        looks = [Saturated(45, per_s, per_s) for per_s in (30.0, 33.0)]
        trials = [
            tried(0, CURRENT, MEASURED, at(100, 0.95)),
            replace(tried(1, OTHERS[0], PRUNED, saturated_at(102, 30)), saturated=looks[0]),
            replace(tried(2, OTHERS[1], PRUNED, saturated_at(102, 33)), saturated=looks[1]),
            Trial(3, OTHERS[2], TrialState.FAILED, reason=said("out of memory")),
        ]
        assert nearest_of(trials, CURRENT, RULES).at_most == 33.0

    def test_one_that_was_only_screened_takes_part_with_what_it_answered(self) -> None:
        trials = [
            tried(0, CURRENT, MEASURED, at(100, 0.95)),
            Trial(
                1,
                OTHERS[0],
                PRUNED,
                score=Score(80.0, feasible=False, violation=1.0, best_point=None),
                saturated=Saturated(45, 79.0, 80.0),
            ),
        ]
        entrant = nearest_of(trials, CURRENT, RULES)
        assert (entrant.level, entrant.at_most) == (pytest.approx(0.8 * 80.0), 80.0)
        assert finalists_of(trials, SPEC, CURRENT, NEAR) == [trials[1]]

    def test_a_config_that_only_missed_is_expected_to_sustain_less_than_that(self) -> None:
        for state in (PRUNED, MEASURED):
            entrant = entrant_of(tried(0, CURRENT, state, at(100, 1.3)), RULES)
            assert 50.0 < entrant.level < entrant.at_most == 100.0

    def test_a_config_with_too_few_answers_is_expected_to_sustain_that_load(self) -> None:
        few = judge_point((P99_40MS, NO_ERRORS), synthetic_measurement(100, 20e3, count=290))
        entrant = entrant_of(tried(0, CURRENT, MEASURED, few), RULES)
        assert (entrant.level, entrant.at_most) == (100.0, math.inf)


def test_a_current_config_that_misses_an_slo_for_a_lone_request_misses_it() -> None:
    bench = Waiting(spec_of(), {SLOW: 1000.0, QUICK: 900.0})
    verdict = proved(bench, SLOW, QUICK, current=SLOW)
    assert verdict.status is Status.IMPROVED  # though it sustains less
    assert verdict.winner is not None
    assert verdict.winner.candidate == QUICK
    baseline = result(bench, verdict).baseline
    assert baseline is not None
    assert "1,002 ms" in texts(verdict.why)[0]
    assert baseline.credited_infer_per_s is None


def test_where_every_config_makes_a_lone_request_wait_none_meets_the_slos() -> None:
    bench = Waiting(spec_of(), {SLOW: 500.0, FASTER_SLOW: 1000.0})
    verdict = proved(bench, SLOW, FASTER_SLOW, current=SLOW)
    assert verdict.status is Status.INFEASIBLE
    assert [reason.split(":")[0] for reason in texts(verdict.why)] == [
        "the current config",
        "trial 1",
    ]
    assert bench.loads == []  # no round is spent on them


def test_a_winner_is_not_written_that_makes_a_lone_request_wait() -> None:
    bench = Waiting(spec_of(), {QUICK: 500.0, FASTER_SLOW: 1000.0, FASTER: 700.0})
    verdict = proved(bench, QUICK, FASTER_SLOW, current=QUICK)
    assert verdict.status is Status.NOT_KNOWN
    assert any("1,002 ms" in text for text in texts(verdict.why))
    assert bench.soaks == []


def test_a_winner_is_not_written_that_misses_an_slo_at_a_tenth_of_its_load() -> None:
    bench = Jittery(spec_of(), {QUICK: 500.0, FASTER: 1000.0})
    verdict = proved(bench, QUICK, FASTER, current=QUICK)
    assert verdict.status is Status.NOT_KNOWN
    assert "93/s" in texts(verdict.why)[-1]
    tenths = [a.level for a in bench.idle if a.candidate == FASTER]
    assert tenths == [pytest.approx(100.0, rel=0.1)] * 2  # again, lest it was chance


def test_no_load_below_the_listed_loads_is_requested() -> None:
    spec = spec_of(workload={"arrivals": {"kind": "poisson", "rate": [400, 900]}})
    bench = Waiting(spec, {QUICK: 500.0, FASTER_SLOW: 1000.0, FASTER: 500.0})
    trials = trial(bench, 0, QUICK, 400, 900), trial(bench, 1, FASTER_SLOW, 400, 900)
    verdict = prove(bench, *trials, current=QUICK)
    assert verdict.status is Status.IMPROVED
    assert bench.idle == []


def test_a_queue_delay_is_not_put_back_where_a_lone_request_would_wait_for_it() -> None:
    """With many requests it makes no difference, so that a simpler file would have it again."""
    bench = Waiting(spec_of(), {SLOW: 500.0, QUICK: 500.0, FASTER: 1000.0, FASTER_SLOW: 1000.0})
    verdict = proved(bench, SLOW, FASTER, current=SLOW)
    assert verdict.status is Status.IMPROVED
    assert verdict.winner is not None
    assert verdict.winner.candidate == FASTER


class TestLowLoads:
    """Without a proof around them."""

    def test_a_config_in_time_for_a_lone_request_and_at_a_tenth_misses_nothing(self) -> None:
        bench = ProvingBench(spec_of(), {QUICK: 500.0})
        session = a_session(bench, bench.spec, QUICK)
        assert slo_missed_at_low_load(session, QUICK, 500.0) is None
        assert [a.level for a in bench.idle] == [50.0]
        assert bench.looks

    def test_what_happens_once_at_a_tenth_of_the_load_may_be_chance(self) -> None:
        class Once(ProvingBench):
            def reading(self, level: float, seed: int) -> Measurement:
                return super().reading(2000.0 if len(self.idle) == 1 else level, seed)

        bench = Once(spec_of(), {QUICK: 500.0})
        assert slo_missed_at_low_load(a_session(bench, bench.spec, QUICK), QUICK, 500.0) is None
        assert len({a.seed for a in bench.idle}) == len(bench.idle) == 2

    @pytest.mark.parametrize(("late", "misses"), [(4, False), (60, True)])
    def test_few_late_requests_at_a_tenth_of_the_load_may_be_chance(
        self, late: int, misses: bool
    ) -> None:
        """Four late requests of 314 miss a p99, though in the long run 0.9% may be late."""

        class Hiccups(ProvingBench):
            def reading(self, level: float, seed: int) -> Measurement:
                latencies = np.where(np.arange(314) < late, 50e3, 5e3)
                by_arrival = np.random.default_rng(seed).permutation(latencies)
                return replace(synthetic_measurement(level, 50e3), by_arrival_us=by_arrival)

        bench = Hiccups(spec_of(), {QUICK: 500.0})
        missed = slo_missed_at_low_load(a_session(bench, bench.spec, QUICK), QUICK, 500.0)
        assert (missed is not None) is misses
        assert len(bench.idle) == 2

    def test_clients_have_no_low_loads(self) -> None:
        spec = spec_of(workload={"arrivals": {"kind": "closed"}})
        bench = ProvingBench(spec, {SLOW: 10.0})
        assert slo_missed_at_low_load(a_session(bench, spec, SLOW), SLOW, 10.0) is None
        assert bench.deployed == []

    def test_other_configs_are_measured_at_low_load_only_where_the_current_one_misses_an_slo(
        self,
    ) -> None:
        for current, expected in ((QUICK, [QUICK]), (SLOW, [SLOW, FASTER_SLOW, QUICK])):
            bench = Waiting(spec_of(), {SLOW: 500.0, QUICK: 500.0, FASTER_SLOW: 1000.0})
            trials = trials_of(bench, current, FASTER_SLOW, *{SLOW, QUICK} - {current})
            low_load_trials, _, reasons = at_low_loads(
                a_session(bench, bench.spec, current), trials
            )
            assert [c for c, _ in bench.deployed] == expected
            missed = [
                t.candidate for t in low_load_trials if t.score is not None and not t.score.feasible
            ]
            assert set(missed) == set(expected) & {SLOW, FASTER_SLOW}
            assert len(reasons) == len(missed)

    def test_config_that_cannot_be_measured_at_low_load_is_reported_and_unchanged(self) -> None:
        bench = Waiting(spec_of(), {QUICK: 500.0})
        trials, watching = trials_of(bench, QUICK), Watching()
        bench.capacity = {}
        session = a_session(bench, bench.spec, QUICK, events=watching)
        assert at_low_loads(session, trials) == (trials, [], [])
        assert len(watching.notes) == 1

    def test_current_config_that_cannot_be_deployed_gets_no_look(self) -> None:
        """The look would be one at the config deployed before."""
        bench, watching = Waiting(spec_of(), {}), Watching()
        trials = [
            tried(0, CURRENT, PRUNED, saturated_at(3788, 11)),
            tried(1, OTHERS[0], MEASURED, at(3714, 0.95)),
        ]
        session = a_session(bench, bench.spec, CURRENT, events=watching)
        assert at_low_loads(session, trials) == (trials, [], [])
        assert (len(watching.notes), bench.looks) == (1, [])
