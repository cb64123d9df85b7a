"""What a trial scores by its load points, whatever the order they were measured in."""

from __future__ import annotations

from itertools import permutations

import pytest
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server

from tuner.errors import LoadFailedError
from tuner.measurement.measurement import Arrivals
from tuner.score.capacity import capacity_by_power
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.metrics import GPU_MEMORY, P99_LATENCY
from tuner.spec.slo import Goal, Objective

GOODPUT = Objective.goodput()
LATENCY = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
MEMORY = Objective(Goal.MINIMIZE, GPU_MEMORY, 300.0, "minimize gpu_memory at 300/s")


def points_at(*levels: float, capacity: float = 100.0) -> list[Point]:
    return [judge_point([P99_40MS, NO_ERRORS], synthetic_server(n, capacity)) for n in levels]


@pytest.mark.parametrize("levels", list(permutations((300.0, 150.0, 120.0))))
def test_a_trial_that_met_the_slos_nowhere_is_what_its_lowest_load_says(
    levels: tuple[float, ...],
) -> None:
    points = points_at(*levels)
    lowest = points[levels.index(120.0)]
    score = score_points(GOODPUT, points)
    assert (score.feasible, score.best_point) == (False, None)
    assert score.value == lowest.measurement.throughput_infer_per_s == 105.0
    assert score.violation == pytest.approx((lowest.measurement.p99_latency_us - 40e3) / 40e3)
    assert score.violation > 1.0


@pytest.mark.parametrize("levels", list(permutations((50.0, 90.0, 130.0))))
def test_goodput_is_what_was_served_at_the_highest_load_that_met_the_slos(
    levels: tuple[float, ...],
) -> None:
    score = score_points(GOODPUT, points_at(*levels))
    assert (score.value, score.feasible, score.violation) == (90.0, True, 0.0)
    assert score.best_point == levels.index(90.0)


def test_a_closed_loops_goodput_is_its_highest_throughput_whatever_the_clients() -> None:
    """84 clients may get less than 54 did."""
    rates = {54.0: 1184.0, 84.0: 959.0, 100.0: 1300.0}
    points = [
        judge_point(
            [P99_40MS],
            synthetic_measurement(
                n, 50e3 if n == 100 else 30e3, served=rate, arrivals=Arrivals.CLOSED
            ),
        )
        for n, rate in rates.items()
    ]
    score = score_points(GOODPUT, points)
    assert (score.value, score.best_point) == (1184.0, 0)


def test_a_minimised_metric_is_read_where_the_slos_were_met() -> None:
    missed, met = synthetic_measurement(300, 50e3), synthetic_measurement(300, 30e3)
    points = [judge_point([P99_40MS], m) for m in (missed, met)]
    score = score_points(LATENCY, points)
    assert (score.value, score.feasible, score.violation) == (30e3, True, 0.0)
    assert score.best_point == 1


def test_a_minimised_metric_that_misses_an_slo_says_by_how_much() -> None:
    score = score_points(LATENCY, [judge_point([P99_40MS], synthetic_measurement(300, 50e3))])
    assert (score.value, score.feasible, score.best_point) == (50e3, False, None)
    assert score.violation == pytest.approx(0.25)


def test_a_metric_that_was_not_measured_cannot_be_minimised() -> None:
    with pytest.raises(LoadFailedError, match="gpu_memory") as caught:
        score_points(MEMORY, points_at(50.0))
    assert "metrics endpoint" in caught.value.hint
    seen = judge_point([P99_40MS], synthetic_measurement(300, gpu_memory=5))
    assert score_points(MEMORY, [seen]).value == 5


def test_a_point_is_the_same_after_being_stored() -> None:
    for p99_us in (20e3, 90e3):
        point = judge_point([P99_40MS, NO_ERRORS], synthetic_measurement(100, p99_us))
        again = Point.from_json(point.to_json())
        assert again.to_json() == point.to_json()
        assert again.slo == point.slo


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


def test_capacity_of_a_trial_is_between_its_sustained_load_and_the_next_miss() -> None:
    trial = a_trial(50.0, 98.0, 90.0, 104.0, 300.0)
    sustained, missed = trial.points[1], trial.points[3]
    level = trial.capacity_level
    assert level == capacity_by_power(sustained, missed)
    assert level == pytest.approx(100.0, rel=0.01)


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
