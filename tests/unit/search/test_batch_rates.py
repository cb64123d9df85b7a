"""What is expected of candidates by the table of batch size to service time that trials leave."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders.candidates import candidate_of, the_one
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement
from builders.surface import COMPOSED, COMPOSED_CACHED, strategy

from tuner.measurement.batch_profile import BatchCall
from tuner.measurement.measurement import ServerStatistics
from tuner.score.point import judge_point
from tuner.score.trial import Trial, TrialState
from tuner.search.strategies.batch_rates import BatchRates
from tuner.search.strategies.gp import GaussianStrategy
from tuner.spec.model import StrategyName

PARAMETERS = {
    "instance_group.count": {"int": [1, 4]},
    "max_batch_size": {"choice": [4, 8, 16, 24, 64]},
    "dynamic_batching": {"choice": [False, True]},
}
ON, OFF = {"dynamic_batching": True}, {"dynamic_batching": None}


def rates() -> BatchRates:
    built = strategy(StrategyName.GP, PARAMETERS)[1]
    assert isinstance(built, GaussianStrategy)
    visits = replace(the_one(built.rates.visits), within_s=0.0401)
    return replace(built.rates, visits={"m": visits})


def known() -> BatchRates:
    """Rates of one model that all requests are for."""
    learned = rates()
    visits = replace(the_one(learned.visits), is_entry=True)
    return replace(learned, visits={"m": visits})


def trial(instances: int, *table: tuple[int, float]) -> Trial:
    """One whose batches of these sizes took so many milliseconds, ten of each."""
    stats = tuple((size, 10, round(10 * took_ms * 1e6)) for size, took_ms in table)
    server = ServerStatistics(100, 0, 100, 50, 10.0, 1.0, 100.0, 1.0, batch_stats=stats)
    measurement = replace(synthetic_measurement(100.0, 10e3), server=server, models={"m": server})
    point = judge_point([P99_40MS, NO_ERRORS], measurement)
    candidate = candidate_of({**ON, "instance_group.count": instances, "max_batch_size": 64})
    return Trial(0, candidate, TrialState.MEASURED, points=(point,))


def config(size: int, *, batching: bool = True, instances: int = 1) -> object:
    sizes = {"instance_group.count": instances, "max_batch_size": size}
    return candidate_of({**sizes, **(ON if batching else OFF)})


def in_time(size: int, took_s: float, within_s: float = 0.0401) -> float:
    """Inferences a second, of which 1% are late, where batches of this size take so long."""
    rate_per_s, left_s = size / took_s, within_s - 2.0 * took_s
    return rate_per_s / (1.0 + math.log(100.0) / (2.0 * rate_per_s * left_s))


def test_nothing_is_expected_before_a_batch_was_seen() -> None:
    log_rate = rates().learned([])
    assert log_rate(config(4)) == log_rate(config(64)) == 0.0


def test_larger_batches_are_expected_to_serve_more_where_they_cost_little_more() -> None:
    log_rate = rates().learned([trial(1, (1, 5.25), (2, 5.5), (8, 7.0))])
    assert math.exp(log_rate(config(8))) == pytest.approx(in_time(8, 7e-3))
    assert math.exp(log_rate(config(4))) == pytest.approx(in_time(4, 6e-3))


def test_without_a_batcher_each_request_runs_alone() -> None:
    log_rate = rates().learned([trial(1, (1, 5.25), (8, 7.0))])
    assert math.exp(log_rate(config(8, batching=False))) == pytest.approx(in_time(1, 5.25e-3))


def test_a_batch_that_no_request_has_time_to_wait_for_is_not_expected_to_form() -> None:
    log_rate = rates().learned([trial(1, (1, 2.0), (8, 16.0))])
    assert math.exp(log_rate(config(64))) == pytest.approx(in_time(1, 2e-3))
    slower = rates().learned([trial(1, (1, 5.0), (4, 8.0))])  # 4 + n ms
    rates_per_s = {n: in_time(n, (4 + n) / 1e3) for n in range(1, 16)}
    best = max(rates_per_s, key=lambda n: rates_per_s[n])
    assert best == 10
    assert math.exp(slower(config(64))) == pytest.approx(rates_per_s[best])


def test_what_instances_take_from_each_other_is_left_to_the_trials() -> None:
    """Times count where the fewest instances were; more of them are worth nothing by themselves."""
    log_rate = rates().learned([trial(4, (1, 20.0), (8, 28.0)), trial(1, (1, 5.25), (8, 7.0))])
    assert math.exp(log_rate(config(8))) == pytest.approx(in_time(8, 7e-3))
    assert log_rate(config(8, instances=4)) == log_rate(config(8))


def test_a_step_in_the_times_is_kept_as_it_was_measured() -> None:
    """A kernel that takes 16 in the time of 1, and then twice as long: no straight line."""
    log_rate = rates().learned([trial(1, (1, 4.0), (16, 4.0), (17, 8.0), (32, 8.0))])
    assert math.exp(log_rate(config(8))) == pytest.approx(in_time(8, 4e-3))
    assert math.exp(log_rate(config(16))) == pytest.approx(in_time(16, 4e-3))
    assert math.exp(log_rate(config(24))) == pytest.approx(in_time(16, 4e-3))


def test_a_rare_slow_batch_is_no_reason_to_prefer_larger_ones() -> None:
    """Larger batches take no less: what looks so is averaged, by how often each was seen."""
    log_rate = rates().learned([trial(1, (1, 2.0), (4, 8.0)), trial(1, (8, 7.0))])
    rates_per_s = [in_time(n, (2.0 + 5.5 * (n - 1) / 3) / 1e3) for n in (1, 2, 3, 4)]
    assert math.exp(log_rate(config(4))) == pytest.approx(max(rates_per_s))
    assert math.exp(log_rate(config(8))) == pytest.approx(in_time(8, 7.5e-3))


def first_calls(*rows: tuple[int, int, float]) -> Trial:
    """A trial whose first calls took so long: size, instances, milliseconds."""
    calls = tuple(BatchCall(size, instances, ms / 1e3) for size, instances, ms in rows)
    return replace(trial(2), batch_calls=calls)


def test_first_calls_say_what_instances_gain() -> None:
    """Of the accelerator, whose device does 80% of a batch, alone."""
    history = [first_calls((1, 1, 5.25), (64, 1, 21.0), (64, 2, 37.8))]
    log_rate = known().learned(history)
    one, two, four = (log_rate(config(8, instances=n)) for n in (1, 2, 4))
    assert 1.15 < math.exp(two - one) < 1.35
    assert four < two


def test_a_config_that_first_calls_show_to_be_far_behind_is_outdone() -> None:
    history = [first_calls((1, 1, 5.25), (64, 1, 21.0), (64, 2, 37.8))]
    outdone = known().outdone(history, config(24, instances=2))
    assert outdone(config(24, batching=False))
    assert not outdone(config(24, instances=3))
    assert not known().outdone([trial(1, (1, 5.25))], config(24))(config(24, batching=False))


def test_a_batch_that_takes_longer_than_the_slo_allows_is_too_slow() -> None:
    too_slow = known().too_slow([first_calls((1, 1, 5.0), (16, 1, 20.0), (64, 1, 80.0))])
    assert [too_slow(config(size)) for size in (4, 16, 24, 64)] == [False, False, False, True]
    assert not too_slow(config(64, batching=False))


def test_where_every_request_is_too_slow_no_size_is_left_out() -> None:
    too_slow = known().too_slow([first_calls((1, 1, 100.0), (64, 1, 900.0))])
    assert not too_slow(config(64))


def test_nothing_is_expected_of_larger_batches_where_one_size_was_seen() -> None:
    log_rate = rates().learned([trial(1, (4, 8.0))])
    assert log_rate(config(8)) == pytest.approx(log_rate(config(4)))


def test_of_several_models_the_one_that_bounds_the_mix_counts() -> None:
    """A model with a quarter of the load may take twice as long."""
    built = strategy(StrategyName.GP, COMPOSED_CACHED)[1]
    assert isinstance(built, GaussianStrategy)
    assert {label: v.inferences for label, v in built.rates.visits.items()} == {
        "one": 0.75,
        "two": 0.25,
    }
    counted = ServerStatistics(100, 0, 100, 50, 10.0, 1.0, 100.0, 1.0)
    stats = {"one": ((1, 10, 50_000_000),), "two": ((1, 10, 100_000_000),)}
    models = {la: replace(counted, batch_stats=rows) for la, rows in stats.items()}
    measurement = replace(synthetic_measurement(100.0, 10e3), models=models)
    point = judge_point([NO_ERRORS], measurement)
    candidate = candidate_of({})
    history = [Trial(0, candidate, TrialState.MEASURED, points=(point,))]
    rate_per_s = math.exp(built.rates.learned(history)(candidate))
    assert rate_per_s == pytest.approx(in_time(1, 10e-3, 0.04) / 0.25)


def test_ensemble_forms_no_batches() -> None:
    built = strategy(StrategyName.GP, COMPOSED)[1]
    assert isinstance(built, GaussianStrategy)
    assert set(built.rates.visits) == {"one", "two"}
