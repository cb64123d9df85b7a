"""What a trial's measurements say about the load it sustains."""

from __future__ import annotations

import pytest
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server

from tuner.measurement.measurement import Arrivals
from tuner.score.capacity import chord
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Objective


def a_trial(*levels: float, capacity: float = 100.0) -> Trial:
    points = [judge_point([P99_40MS, NO_ERRORS], synthetic_server(n, capacity)) for n in levels]
    score = score_points(Objective.goodput(), points)
    return Trial(0, Candidate(), TrialState.MEASURED, points=tuple(points), score=score)


def test_a_trial_stands_the_highest_load_that_met_the_slos() -> None:
    assert a_trial(50.0, 98.0, 90.0, 104.0).sustained_level == 98.0


def test_a_trial_without_a_result_or_that_met_the_slos_nowhere_stands_nothing() -> None:
    for trial in (Trial(0, Candidate(), TrialState.FAILED), a_trial(300.0, 104.0)):
        assert trial.sustained_level is None
        assert trial.capacity_level is None


def test_its_capacity_is_between_the_load_it_stood_and_the_next_one() -> None:
    trial = a_trial(50.0, 98.0, 90.0, 104.0, 300.0)
    sustained, missed = trial.points[1], trial.points[3]
    found = trial.capacity_level
    assert found == chord(sustained, missed)
    assert found == pytest.approx(100.0, rel=0.01)


def test_where_nothing_above_was_missed_the_capacity_is_the_load_it_stood() -> None:
    assert a_trial(98.0).capacity_level == 98.0


def test_a_miss_below_the_load_it_stood_does_not_count() -> None:
    missed = judge_point([P99_40MS, NO_ERRORS], synthetic_server(60.0, 40.0))  # a slow moment
    sustained = a_trial(98.0)
    points = (missed, *sustained.points)
    trial = Trial(
        0,
        Candidate(),
        TrialState.MEASURED,
        points=points,
        score=score_points(Objective.goodput(), points),
    )
    assert (trial.sustained_level, trial.capacity_level) == (98.0, 98.0)


def test_of_a_closed_loop_more_clients_that_get_less_are_no_capacity() -> None:
    points = tuple(
        judge_point(
            [P99_40MS],
            synthetic_measurement(n, p99_us, served=rate, arrivals=Arrivals.CLOSED),
        )
        for n, p99_us, rate in [(54, 30e3, 1184.0), (84, 35e3, 959.0), (96, 50e3, 900.0)]
    )
    score = score_points(Objective.goodput(), points)
    trial = Trial(0, Candidate(), TrialState.MEASURED, points=points, score=score)
    assert (trial.sustained_level, trial.capacity_level) == (54, 54)
