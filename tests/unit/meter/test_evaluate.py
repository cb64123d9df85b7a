from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement, synthetic_server
from builders.reasons import texts
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import ClientLimitError, LoadFailedError, ModelFailsError, OutOfTimeError
from tuner.measurement.measurement import Arrivals
from tuner.meter.evaluate import Evaluation, Race, evaluate, evaluate_listed, race
from tuner.score.capacity import LevelRange, saturated
from tuner.score.next_load import MOST_FREE, TOLERANCE, LoadPlan, load_plan
from tuner.score.point import Point, judge_point
from tuner.score.trial import TrialState
from tuner.spec.arrivals import BurstArrivals, ClosedArrivals, PoissonArrivals
from tuner.spec.metrics import GPU_MEMORY, P99_LATENCY
from tuner.spec.slo import Goal, Objective
from tuner.spec.units import Seconds
from tuner.spec.workload import Workload

OPEN = LoadPlan(Arrivals.POISSON, None, LevelRange(0.1, 1e5))
GOODPUT = Objective.goodput()


def emulated(capacity: float, levels: list[float]) -> Callable[[float], Point]:
    def measure(level: float) -> Point:
        levels.append(level)
        return judge_point([P99_40MS, NO_ERRORS], synthetic_server(level, capacity))

    return measure


def up_to(
    most: float, capacity: float, error: Exception, levels: list[float] | None = None
) -> Callable[[float], Point]:
    """A server of this capacity, behind what fails above a level."""
    served = emulated(capacity, [])

    def measure(level: float) -> Point:
        if levels is not None:
            levels.append(level)
        if level > most:
            raise error
        return served(level)

    return measure


def behind(sent_per_s: float | None = None) -> ClientLimitError:
    return ClientLimitError("the load generator could not keep up", sent_per_s=sent_per_s)


NO_RESULTS = LoadFailedError("no results by the deadline")


def evaluate_racing(
    measure: Callable[[float], Point], objective: Objective, plan: LoadPlan, rules: Race
) -> Evaluation:
    """As a trial is measured when there is a load to beat."""
    raced = race(measure, plan, rules)
    if raced.lost:
        return raced.evaluation(objective)
    return evaluate(measure, objective, plan, rules.to_beat, known=raced.points)


#: Enough that a window at a tenth of it has the answers for a verdict.
CAPACITY = st.floats(1e3, 2e4)


def test_a_short_measurement_leaves_time_for_another() -> None:
    """A first load at 43% of the capacity was taken for all of it, after two misses of a second."""

    def measure(level: float) -> Point:
        p99_us = 12_000.0 if level <= 40.0 else 400_000.0
        return judge_point([P99_40MS, NO_ERRORS], synthetic_measurement(level, p99_us))

    def cost(point: Point) -> float:
        return 17.0 / point.level if point.passed else 0.25

    counted = evaluate(measure, GOODPUT, OPEN, start=17.0, at_most=3)
    evaluation = evaluate(measure, GOODPUT, OPEN, start=17.0, at_most=3, cost=cost)
    assert counted.score.value < 25.0
    assert 30.0 <= evaluation.score.value <= 40.0
    assert sum(map(cost, evaluation.points)) <= 3.0


@given(CAPACITY, st.floats(0.1, 5.0), st.integers(2, 5))
def test_a_candidate_is_measured_to_its_capacity_with_no_more_loads_than_it_may(
    capacity: float, start: float, at_most: int
) -> None:
    levels: list[float] = []
    evaluation = evaluate(
        emulated(capacity, levels), GOODPUT, OPEN, start=start * capacity, at_most=at_most
    )
    assert evaluation.state is TrialState.MEASURED
    assert len(levels) == len(set(levels)) <= at_most + MOST_FREE
    if evaluation.score.feasible:
        assert evaluation.score.value <= capacity
    if at_most == 5:
        assert evaluation.score.value == pytest.approx(capacity, rel=2 * TOLERANCE)


@given(CAPACITY, st.floats(0.2, 5.0).filter(lambda share: abs(share - 1.0) > 1e-3))
def test_a_race_costs_one_measurement_where_it_is_lost_and_leads_to_the_capacity_where_not(
    capacity: float, share: float
) -> None:
    levels: list[float] = []
    to_beat = OPEN.levels.nearest(share * capacity)
    evaluation = evaluate_racing(emulated(capacity, levels), GOODPUT, OPEN, Race(to_beat))
    if share > 1.0:
        assert (evaluation.state, levels) == (TrialState.PRUNED, [to_beat])
        assert not evaluation.score.feasible
        assert 0.0 < evaluation.score.value < to_beat
        farther = evaluate_racing(emulated(0.9 * capacity, []), GOODPUT, OPEN, Race(to_beat))
        assert farther.score.value <= evaluation.score.value
        assert farther.score.violation >= evaluation.score.violation > 0.0
    else:
        assert evaluation.state is TrialState.MEASURED
        assert levels[0] == to_beat
        assert to_beat <= evaluation.score.value <= capacity


@given(CAPACITY, st.floats(1.05, 20.0), st.floats(0.2, 0.95))
def test_a_load_without_a_result_was_too_much_and_lower_ones_are_tried(
    capacity: float, silent: float, start: float
) -> None:
    levels: list[float] = []
    fails = up_to(silent * capacity, capacity, NO_RESULTS, levels)
    evaluation = evaluate(fails, GOODPUT, OPEN, start=start * capacity)
    assert (evaluation.state, evaluation.limit) == (TrialState.MEASURED, None)
    assert evaluation.score.value <= capacity or not evaluation.score.feasible
    assert len(levels) == len(set(levels))


@given(CAPACITY, st.floats(0.2, 5.0), st.floats(0.1, 5.0))
def test_none_is_credited_with_more_than_was_sent_nor_limited_where_it_sustains_less(
    capacity: float, sent: float, start: float
) -> None:
    most, levels = sent * capacity, list[float]()
    limited = up_to(most, capacity, behind(sent_per_s=most), levels)
    evaluation = evaluate(limited, GOODPUT, OPEN, start=start * capacity)
    assert evaluation.score.value <= min(most, 1.05 * capacity)
    assert all(p.level <= most for p in evaluation.points)
    if sent > 1.3:
        assert evaluation.limit is None
    if sent < 0.9:
        assert evaluation.limit is not None


def test_a_telling_candidate_that_loses_is_measured_where_it_should_pass() -> None:
    levels: list[float] = []
    lost = evaluate_racing(emulated(300, levels), GOODPUT, OPEN, Race(1000))
    loser = emulated(300, levels)
    informed = evaluate_racing(loser, GOODPUT, OPEN, Race(1000, informative=loser))
    assert levels == [1000, 1000, pytest.approx(0.75 * 1.05 * 300, rel=1e-3)]
    assert (informed.state, informed.score) == (TrialState.PRUNED, lost.score)
    won = evaluate_racing(emulated(2500, []), GOODPUT, OPEN, Race(1000, informative=loser))
    assert won == evaluate_racing(emulated(2500, []), GOODPUT, OPEN, Race(1000))


def test_a_race_counts_without_the_measurement_after_it() -> None:
    fails = up_to(0, 0, NO_RESULTS)
    evaluation = evaluate_racing(emulated(300, []), GOODPUT, OPEN, Race(1000, informative=fails))
    assert (evaluation.state, len(evaluation.points)) == (TrialState.PRUNED, 1)


def test_a_server_that_answers_batches_is_read_in_requests() -> None:
    """As the load is asked for; it answered two inferences for each."""
    measured = replace(synthetic_measurement(100.0, served=196.0), batch_size=2)
    probe = judge_point([P99_40MS, NO_ERRORS], measured)
    assert (probe.level, probe.served_per_s, saturated(probe)) == (100.0, 98.0, False)
    assert (probe.passed, probe.slo_utilisation) == (True, 0.5)


def test_a_client_at_its_limit_ends_the_search_at_what_it_can_send() -> None:
    limited = up_to(1500, 5000, behind(sent_per_s=1600))
    result = evaluate_racing(limited, GOODPUT, OPEN, Race(1000))
    assert result.state is TrialState.MEASURED
    assert [p.level for p in result.points] == [1000, 1440]
    assert result.score.value == 1440
    assert "1,440/s" in texts([result.limit])[0]
    with pytest.raises(ClientLimitError):
        evaluate_racing(limited, GOODPUT, OPEN, Race(2000))
    listed = (500.0, 1500.0, 2000.0)
    result = evaluate_listed(limited, GOODPUT, listed)
    assert (len(result.points), result.score.value) == (2, 1500)
    with pytest.raises(ClientLimitError):
        evaluate_listed(limited, GOODPUT, (2000.0,))


@pytest.mark.parametrize("to_beat", [None, 1000.0])
def test_a_candidate_is_measured_five_times_at_the_most(to_beat: float | None) -> None:
    """The race and the first load included; without latencies it takes long to be sure."""
    levels: list[float] = []

    def measure(level: float) -> Point:
        levels.append(level)
        lost = 0 if level <= 1700 else 5
        return judge_point([NO_ERRORS], synthetic_measurement(level, failed=lost))

    if to_beat is None:
        result = evaluate(measure, GOODPUT, OPEN, start=1000)
    else:
        result = evaluate_racing(measure, GOODPUT, OPEN, Race(to_beat))
    assert len(levels) == len(result.points) == 5
    assert levels[:2] == [1000, 2000]


def test_a_first_load_that_is_too_high_is_stepped_down() -> None:
    levels: list[float] = []
    limited = up_to(1500, 5000, behind(sent_per_s=1500), levels)
    result = evaluate(limited, GOODPUT, OPEN, start=7096)
    assert levels[:2] == [7096, 1350]
    assert (result.state, result.score.value) == (TrialState.MEASURED, 1350)
    assert "1,350/s" in texts([result.limit])[0]


def test_beyond_a_listed_load_that_the_client_cannot_send_none_is_tried() -> None:
    levels: list[float] = []
    listed = (500.0, 1500.0, 2000.0)
    result = evaluate_listed(up_to(1000, 5000, behind(), levels), GOODPUT, listed)
    assert levels == [500, 1500]
    assert (result.limit, result.score.value) == (behind().reason, 500)


def test_failing_model_is_not_retried_at_a_lower_load() -> None:
    """There it may answer, since no batches form."""
    levels: list[float] = []
    fails = up_to(0, 0, ModelFailsError("the model failed 3 of 9 requests"), levels)
    with pytest.raises(ModelFailsError):
        evaluate(fails, GOODPUT, OPEN, start=100)
    assert levels == [100]


def test_time_that_is_up_ends_a_trial_with_what_it_has() -> None:
    served = emulated(800, [])

    def late(level: float) -> Point:
        if late.left == 0:  # type: ignore[attr-defined]
            raise OutOfTimeError("the time of the budget is used up")
        late.left -= 1  # type: ignore[attr-defined]
        return served(level)

    late.left = 1  # type: ignore[attr-defined]
    result = evaluate(late, GOODPUT, OPEN, start=100)
    assert (result.state, result.score.value) == (TrialState.MEASURED, 100)
    assert result.limit is not None
    late.left = 1  # type: ignore[attr-defined]
    with pytest.raises(OutOfTimeError):
        evaluate(late, GOODPUT, OPEN, start=2000)


def test_listed_levels_stop_at_the_first_that_fails() -> None:
    plan = load_plan(
        Workload(arrivals=PoissonArrivals(kind="poisson", rate=(100, 400, 200, 900))), GOODPUT
    )
    levels: list[float] = []
    result = evaluate_listed(emulated(300, levels), GOODPUT, plan.listed or ())
    assert levels == [100, 200, 400]
    assert result.score.value == 200


def test_a_minimised_metric_is_measured_once_at_its_level() -> None:
    objective = Objective(Goal.MINIMIZE, P99_LATENCY, 300.0, "minimize p99_latency at 300/s")
    plan = load_plan(Workload(), objective)
    levels: list[float] = []
    result = evaluate_listed(emulated(400, levels), objective, plan.listed or ())
    assert levels == [300]
    assert result.score.feasible
    assert result.score.value == pytest.approx(15_000 + 25_000 * 0.75**8)


def test_minimising_what_was_not_measured_fails_the_trial() -> None:
    objective = Objective(Goal.MINIMIZE, GPU_MEMORY, 300.0, "minimize gpu_memory at 300/s")

    def measure(level: float) -> Point:
        return judge_point([P99_40MS], synthetic_measurement(level))

    with pytest.raises(LoadFailedError, match="gpu_memory"):
        evaluate_listed(measure, objective, [300.0])


def test_closed_arrivals_search_integers() -> None:
    plan = load_plan(Workload(arrivals=ClosedArrivals(kind="closed", max_concurrency=64)), GOODPUT)
    assert plan.levels == LevelRange(1.0, 64.0, integer=True)


def test_bursts_are_planned_like_other_rates() -> None:
    searched = Workload(arrivals=BurstArrivals(kind="bursts", max_rate=500))
    plan = load_plan(searched, Objective.goodput())
    assert plan == LoadPlan(Arrivals.BURSTS, None, LevelRange(plan.levels.lowest, 500))
    listed = Workload(arrivals=BurstArrivals(kind="bursts", rate=(200, 100)))
    assert load_plan(listed, Objective.goodput()).listed == (100, 200)


def test_search_skips_rates_at_which_the_longest_window_is_too_short_for_a_verdict() -> None:
    minute = Workload(max_window=Seconds(60.0))
    levels = load_plan(minute, GOODPUT, [P99_40MS, NO_ERRORS]).levels
    assert levels.lowest == pytest.approx(1.05 * 459 / 60)
    assert load_plan(Workload(), GOODPUT).levels.lowest < 0.05


CLOSED = LoadPlan(Arrivals.CLOSED, None, LevelRange(1, 256, integer=True))


def closed_loop(most: float, answers: float, levels: list[float]) -> Callable[[float], Point]:
    """Meets the SLO up to so many clients, each of which gets the same of the throughput there."""

    def measure(level: float) -> Point:
        levels.append(level)
        rate = answers * min(level / most, 1.05)
        p99_us = 40e3 * (level / most) ** 2
        point = synthetic_measurement(level, p99_us, served=rate, arrivals=Arrivals.CLOSED)
        return judge_point([P99_40MS, NO_ERRORS], point)

    return measure


def test_a_closed_loop_that_answers_more_to_fewer_clients_wins_the_evaluate_racing() -> None:
    """64 clients with 1684/s are worth less than 59 with 2394/s."""
    levels: list[float] = []
    served = closed_loop(59, 2394.0, levels)
    evaluation = evaluate_racing(served, GOODPUT, CLOSED, Race(64, 1684 * 1.02))
    assert levels[0] == 64
    assert evaluation.state is TrialState.MEASURED
    assert evaluation.score.feasible
    assert evaluation.score.value == pytest.approx(2394, rel=0.05)


def test_a_closed_loop_that_fails_and_answers_less_has_lost() -> None:
    levels: list[float] = []
    evaluation = evaluate_racing(closed_loop(59, 1500.0, levels), GOODPUT, CLOSED, Race(64, 1684))
    assert (evaluation.state, levels) == (TrialState.PRUNED, [64])


def test_a_race_without_enough_answers_is_not_lost() -> None:
    """It is measured further up, never pruned or called infeasible for it."""
    levels: list[float] = []

    def few(level: float) -> Point:
        levels.append(level)
        seen = synthetic_measurement(level, 30e3, count=100 if level < 20 else 400)
        return judge_point([P99_40MS, NO_ERRORS], seen)

    evaluation = evaluate_racing(few, GOODPUT, OPEN, Race(10))
    assert (evaluation.state, evaluation.score.feasible) == (TrialState.MEASURED, True)
    assert levels[:2] == [10, 20]
