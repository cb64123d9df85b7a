"""The estimate of a run's time: what it counts, and what an earlier run tells of the next one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from builders.candidates import candidate_of, the_one
from builders.jobs import a_job
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_server
from builders.runs import Toy, manifest_of

from tuner.confirm.rounds import Row
from tuner.confirm.soak import MOST_WINDOWS, RELAXATIONS
from tuner.measurement.measurement import Course
from tuner.run.confirmation import Role
from tuner.run.store import RunStore
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.spec.slo import Objective
from tuner.steps.estimate import DEPLOY_S, OVERHEAD_S, Estimate, Seen, estimate_run, seen_before
from tuner.steps.job import Job, Request, prepare

SPEC = """\
model: emulated-accelerator
repository: {repository}
workload: {{window: 2s, warmup: 500ms, arrivals: {arrivals}}}
slo: ["{slo}"]
objective: {objective}
space:
  instance_group.count: {{int: [1, 6]}}
  dynamic_batching.max_queue_delay_microseconds: {{int: [1, 500], or: 0}}
budget: {{trials: {trials}{time}}}
confirm: {{rounds: {rounds}, finalists: {finalists}, soak: {soak}}}
"""
REPOSITORY = Path(__file__).parents[3] / "model_repository"
#: With the 0.25 s that load goes on after the window.
POINT_S = 2.0 + 0.5 + 0.25 + OVERHEAD_S


def estimate(directory: Path, **changes: object) -> Estimate:
    given: dict[str, object] = {
        "arrivals": "{kind: poisson}",
        "slo": "p99_latency <= 40ms",
        "objective": "maximize goodput",
        "trials": 20,
        "time": "",
        "rounds": 3,
        "finalists": 2,
        "soak": "30s",
    }
    path = directory / "spec.yaml"
    path.write_text(SPEC.format(repository=REPOSITORY, **{**given, **changes}))
    return estimate_run(prepare(Request(spec=path)))


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


def test_what_a_run_of_twenty_trials_takes(tmp_path: Path) -> None:
    """A deploy 1.8 s, a measurement 0.6 s beyond its window; 7 of 20 trials lead for a while."""
    found = estimate(tmp_path)
    measuring_s = 2.0 + 0.5 + 0.25 + 0.6
    incumbents = 1.0 + 2.0 * math.log(20)
    assert found.search_s == pytest.approx(20 * 1.8 + (20 + 4 * incumbents) * measuring_s)
    assert found.confirmation_s == pytest.approx(3 * 3 * (1.8 + 2 * measuring_s))
    without = estimate(tmp_path, slo="avg_latency <= 40ms").after_s
    soak_s = 1.8 + 30.0 + 0.5 + 0.25 + 0.6
    assert without == pytest.approx(2 * (1 + 3) / 2 * (1.8 + measuring_s) + 2 * 1.8 + soak_s)


def test_a_soak_is_counted_as_long_as_it_will_be(tmp_path: Path) -> None:
    soaks = [estimate(tmp_path, soak=s).after_s for s in ("0", "10s", "30s")]
    assert soaks[2] - soaks[1] == pytest.approx(20.0)
    soak_s = DEPLOY_S + 10.0 + 0.5 + 0.25 + OVERHEAD_S
    assert soaks[1] - soaks[0] == pytest.approx(soak_s + 5 * (5.0 + 0.5 + 0.25 + OVERHEAD_S))


def test_loads_around_the_claim_are_counted_only_where_they_are_measured(tmp_path: Path) -> None:
    """An SLO of a second is no matter of 5 s: those loads are left out."""
    for slo, measured in (("40ms", True), ("1s", False)):
        without, soaked = (
            estimate(tmp_path, slo=f"p99_latency <= {slo}", soak=s) for s in ("0", "60s")
        )
        soak_s = DEPLOY_S + 60.0 + OVERHEAD_S
        more_s = soaked.after_s - without.after_s - soak_s
        assert (more_s > 20.0) is measured


def test_a_single_trial_is_an_incumbent_and_the_only_finalist(tmp_path: Path) -> None:
    found = estimate(tmp_path, trials=1)
    assert found.search_s == pytest.approx(DEPLOY_S + 5 * POINT_S)
    assert found.confirmation_s == pytest.approx(3 * 2 * (DEPLOY_S + 2 * POINT_S))


def test_no_more_trials_than_there_are_configs_are_counted(tmp_path: Path) -> None:
    listed = "{kind: poisson, rate: [300]}"
    found = estimate(tmp_path, arrivals=listed, trials=99999)
    assert found.search_s == pytest.approx(6 * 501 * (DEPLOY_S + POINT_S))
    longer = estimate(tmp_path, arrivals=listed, time=", time: 30m")
    assert longer.search_s == pytest.approx(20 * (DEPLOY_S + POINT_S))


def test_each_start_of_a_closed_loop_takes_its_share_of_the_window(tmp_path: Path) -> None:
    def each_s(restarts: int) -> float:
        closed = f"{{kind: closed, concurrency: [8], restarts: {restarts}}}"
        return estimate(tmp_path, arrivals=closed).search_s / 20 - DEPLOY_S

    each_start_s = 0.5 + 0.25 + 0.6  # warm-up, the end of the load, perf_analyzer's own
    assert each_s(1) == pytest.approx(2.0 + each_start_s)
    assert each_s(2) == pytest.approx(2.0 + 2 * each_start_s)
    assert each_s(4) == pytest.approx(4.0 + 4 * each_start_s)  # no part is under a second


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
    with_it = estimate(tmp_path, soak="0").after_s
    without = estimate(tmp_path, slo="avg_latency <= 40ms", soak="0").after_s
    assert with_it - without == pytest.approx(20.0, abs=1.0)


def test_the_text_tells_both_ends_and_the_parts() -> None:
    assert Estimate(60.0, 90.0, 30.0).text == (
        "about 3.0 to 4.5 minutes: search 1.0, confirmation 1.5 to 3.0, the rest 0.5"
    )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


def an_earlier_run(results: Path, job: Job, rate: float, load_s: float, when: str) -> None:
    store = RunStore.create(results, f"{when}-{job.spec.name}-abcd")
    store.write_manifest(manifest_of(Toy(model=job.spec.name), "r").to_json())
    points = tuple(
        judge_point([P99_40MS, NO_ERRORS], synthetic_server(rate, 2 * rate, 100.0)) for _ in "1"
    )
    score = score_points(Objective.goodput(), points)
    for number, kind in enumerate(["unchanged", "reload", "restart"]):
        took = TrialTime(deploying_s=0.0 if kind == "unchanged" else load_s)
        store.append_trial(
            Trial(
                number,
                candidate_of({"n": number}),
                TrialState.MEASURED,
                points,
                score,
                deployment=kind,
                time=took,
            )
        )


def test_the_newest_run_of_the_model_tells_its_rate_and_what_a_load_takes(
    job: Job, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    an_earlier_run(results, job, 50.0, 30.0, "20260101-000000")
    an_earlier_run(results, job, 8.0, 60.0, "20260102-000000")
    assert seen_before(results, job) == Seen(8.0, 60.0)
    (results / f"20260103-000000-{job.spec.name}-dead").mkdir()
    assert seen_before(results, job) == Seen(8.0, 60.0)


def test_windows_of_a_confirmation_and_a_soak_are_foreseen_as_long_as_they_were(
    job: Job, tmp_path: Path
) -> None:
    results, model = tmp_path / "results", job.spec.name
    an_earlier_run(results, job, 400.0, 1.8, "20260101-000000")
    store = RunStore.open(results / f"20260101-000000-{model}-abcd")
    remembers = Course(growth=0.0, growth_error=0.1, relaxation_s=0.5)
    slow = replace(synthetic_server(300.0, 400.0, 30.0), duration_s=7.0, course=remembers)
    for order, role in enumerate([Role.CURRENT, Role.CANDIDATE, Role.CANDIDATE, Role.SOAK]):
        point = judge_point([P99_40MS, NO_ERRORS], slow)
        store.append_confirmation(Row(0, order, role, candidate_of({"n": 1}), point).kept)
    seen = seen_before(results, job)
    assert seen == Seen(400.0, 1.8, 7.0, 0.5 * RELAXATIONS)
    before, found = estimate_run(job, Seen(400.0, 1.8)), estimate_run(job, seen)
    window_s = float(job.spec.workload.window)
    assert found.search_s == before.search_s
    rounds, sides, each = job.spec.confirm.rounds, 1 + job.spec.confirm.finalists, 2
    longer_s = found.confirmation_s - before.confirmation_s
    assert longer_s == pytest.approx(rounds * sides * each * (7.0 - window_s))
    undone = len(the_one(job.spec.models).space) * (1 + rounds) / 2
    soak_s = 0.5 * RELAXATIONS - float(job.spec.confirm.soak)
    assert found.after_s - before.after_s == pytest.approx(undone * (7.0 - window_s) + soak_s)


def test_no_window_is_foreseen_longer_than_a_claim_may_have(job: Job) -> None:
    longest = estimate_run(job, Seen(claim_window_s=MOST_WINDOWS * float(job.spec.workload.window)))
    assert estimate_run(job, Seen(claim_window_s=9999.0)) == longest


def test_without_an_earlier_run_nothing_is_seen(job: Job, tmp_path: Path) -> None:
    assert seen_before(tmp_path / "results", job) is None


def test_a_slow_models_run_is_foreseen_as_long_as_it_is(job: Job) -> None:
    fast, slow = estimate_run(job), estimate_run(job, Seen(8.0))
    assert slow.confirmation_s > 10 * fast.confirmation_s
    assert slow.load_s == DEPLOY_S


def test_loads_that_take_a_minute_are_counted_and_told(job: Job) -> None:
    fast, large = estimate_run(job), estimate_run(job, Seen(None, 60.0))
    counted = large.loads * (60.0 - DEPLOY_S)
    more = sum(
        getattr(large, n) - getattr(fast, n) for n in ("search_s", "confirmation_s", "after_s")
    )
    assert more == pytest.approx(counted, rel=0.1)
    assert large.text.endswith(f"; {large.loads} loads of the model, 60 s each, are in it")
    assert "loads" not in fast.text
