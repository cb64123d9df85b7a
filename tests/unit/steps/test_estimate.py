"""`tune plan`'s estimate of the time: what it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.steps.estimate import DEPLOY_S, OVERHEAD_S, Estimate, estimated
from tuner.steps.job import Request, prepare

SPEC = """\
model: emulated-accelerator
repository: {repository}
workload: {{window: 2s, warmup: 500ms, arrivals: {arrivals}}}
slo: ["{slo}"]
objective: {objective}
space:
  instance_group.count: {{int: [1, 6]}}
  dynamic_batching.max_queue_delay_microseconds: {{int: [1, 500], or: 0}}
budget: {{trials: 20{time}}}
confirm: {{rounds: {rounds}, finalists: {finalists}}}
"""
REPOSITORY = Path(__file__).parents[3] / "model_repository"
#: With the 0.25 s that load goes on after the window.
POINT_S = 2.0 + 0.5 + 0.25 + OVERHEAD_S


def estimate(directory: Path, **changes: object) -> Estimate:
    given: dict[str, object] = {
        "arrivals": "{kind: poisson}",
        "slo": "p99_latency <= 40ms",
        "objective": "maximize goodput",
        "time": "",
        "rounds": 3,
        "finalists": 2,
    }
    path = directory / "spec.yaml"
    path.write_text(SPEC.format(repository=REPOSITORY, **{**given, **changes}))
    return estimated(prepare(Request(spec=path)))


@pytest.mark.parametrize(("rounds", "finalists"), [(3, 2), (5, 2), (3, 4)])
def test_a_round_measures_every_finalist_and_the_current_config_twice(
    tmp_path: Path, rounds: int, finalists: int
) -> None:
    found = estimate(tmp_path, rounds=rounds, finalists=finalists)
    side_s = DEPLOY_S + 2 * POINT_S
    assert found.confirmation_s == pytest.approx(rounds * (finalists + 1) * side_s)


def test_losers_cost_one_measurement_and_new_incumbents_five(tmp_path: Path) -> None:
    search_s = estimate(tmp_path).search_s - 20 * DEPLOY_S
    assert 20 * POINT_S < search_s < 20 * 5 * POINT_S
    assert search_s == pytest.approx((20 + 7 * 4) * POINT_S, rel=0.02)


def test_the_search_is_no_longer_than_its_budget(tmp_path: Path) -> None:
    assert estimate(tmp_path, time=", time: 1m").search_s == 60.0


def test_where_loads_are_listed_each_is_measured_once(tmp_path: Path) -> None:
    found = estimate(tmp_path, arrivals="{kind: poisson, rate: [300, 400, 600]}")
    assert found.search_s == pytest.approx(20 * (DEPLOY_S + 2 * POINT_S))
    assert found.confirmation_s == pytest.approx(9 * (DEPLOY_S + POINT_S))


def test_a_closed_loop_is_started_several_times(tmp_path: Path) -> None:
    once = estimate(tmp_path, arrivals="{kind: closed, restarts: 1}").search_s
    thrice = estimate(tmp_path, arrivals="{kind: closed, restarts: 3}").search_s
    assert thrice > 1.5 * once


def test_an_overload_of_two_configs_takes_twenty_seconds(tmp_path: Path) -> None:
    with_it = estimate(tmp_path).after_s
    without = estimate(tmp_path, slo="avg_latency <= 40ms").after_s
    assert with_it - without == pytest.approx(20.0, abs=1.0)


def test_the_text_tells_both_ends_and_the_parts() -> None:
    assert Estimate(60.0, 90.0, 30.0).text == (
        "about 3.0 to 4.5 minutes: search 1.0, confirmation 1.5 to 3.0, the rest 0.5"
    )
