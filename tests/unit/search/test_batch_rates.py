"""What is expected of candidates by the table of batch size to service time that trials leave."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from candidates import candidate_of
from synthetic import NO_ERRORS, P99_40MS, synthetic_measurement
from unit.search.surface import strategy

from tuner.measurement.measurement import ServerStatistics
from tuner.score.point import judge_point
from tuner.score.trial import Trial, TrialState
from tuner.search.strategies.batch_rates import BatchRates
from tuner.search.strategies.gp import GaussianStrategy
from tuner.spec.model import Strategy

PARAMETERS = {
    "instance_group.count": {"int": [1, 4]},
    "max_batch_size": {"choice": [4, 8, 64]},
    "dynamic_batching": {"choice": [False, True]},
}
ON, OFF = {"dynamic_batching": True}, {"dynamic_batching": None}


def rates() -> BatchRates:
    built = strategy(Strategy.GP, PARAMETERS)[1]
    assert isinstance(built, GaussianStrategy)
    return replace(built.rates, within_s=0.0401)


def trial(instances: int, *table: tuple[int, float]) -> Trial:
    """One whose batches of these sizes took so many milliseconds, ten of each."""
    stats = tuple((size, 10, round(10 * took_ms * 1e6)) for size, took_ms in table)
    server = ServerStatistics(100, 0, 100, 50, 10.0, 1.0, 100.0, 1.0, batch_stats=stats)
    measurement = replace(synthetic_measurement(100.0, 10e3), server=server)
    point = judge_point([P99_40MS, NO_ERRORS], measurement)
    candidate = candidate_of({**ON, "instance_group.count": instances, "max_batch_size": 64})
    return Trial(0, candidate, TrialState.MEASURED, points=(point,))


def config(size: int, *, batching: bool = True, instances: int = 1) -> object:
    own = {"instance_group.count": instances, "max_batch_size": size}
    return candidate_of({**own, **(ON if batching else OFF)})


def test_nothing_is_expected_before_a_batch_was_seen() -> None:
    log_rate = rates().learned([])
    assert log_rate(config(4)) == log_rate(config(64)) == 0.0


def test_larger_batches_are_expected_to_serve_more_where_they_cost_little_more() -> None:
    log_rate = rates().learned([trial(1, (1, 5.25), (2, 5.5), (8, 7.0))])
    assert math.exp(log_rate(config(8))) == pytest.approx(8 / 7e-3)
    assert math.exp(log_rate(config(4))) == pytest.approx(4 / 6e-3)


def test_without_a_batcher_each_request_runs_alone() -> None:
    log_rate = rates().learned([trial(1, (1, 5.25), (8, 7.0))])
    assert math.exp(log_rate(config(8, batching=False))) == pytest.approx(1 / 5.25e-3)


def test_a_batch_that_no_request_has_time_to_wait_for_is_not_expected_to_form() -> None:
    log_rate = rates().learned([trial(1, (1, 2.0), (8, 16.0))])
    assert math.exp(log_rate(config(64))) == pytest.approx(1 / 2e-3)
    slower = rates().learned([trial(1, (1, 5.0), (4, 8.0))])  # 4 + n ms: 16 of them fit twice
    assert math.exp(slower(config(64))) == pytest.approx(16 / 20e-3)


def test_what_instances_take_from_each_other_is_left_to_the_trials() -> None:
    """Times count where the fewest instances were; more of them are worth nothing by themselves."""
    log_rate = rates().learned([trial(4, (1, 20.0), (8, 28.0)), trial(1, (1, 5.25), (8, 7.0))])
    assert math.exp(log_rate(config(8))) == pytest.approx(8 / 7e-3)
    assert log_rate(config(8, instances=4)) == log_rate(config(8))
