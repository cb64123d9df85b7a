"""The estimate of a run's time: what it counts, and what an earlier run tells of the next one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import candidate_of
from builders.jobs import a_job
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_server
from builders.runs import Toy, manifest_of

from tuner.bench.job import Job, Request, prepare
from tuner.record.store import RunStore
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState, TrialTime, Worker
from tuner.search.estimate import (
    DEPLOY_S,
    OVERHEAD_S,
    Estimate,
    Seen,
    estimate_run,
    foresee_run,
    seen_before,
)
from tuner.spec.slo import Objective

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


def test_more_rounds_finalists_changes_and_a_longer_soak_take_longer(tmp_path: Path) -> None:
    least = estimate(tmp_path, rounds=3, soak="10s").proof_s
    assert estimate(tmp_path, rounds=5, soak="10s").proof_s > least
    assert estimate(tmp_path, rounds=3, soak="10s", finalists=4).proof_s > least
    assert estimate(tmp_path, rounds=3, soak="30s").proof_s == pytest.approx(least + 20.0)
    assert estimate(tmp_path, rounds=3, soak="0").proof_s < least - 10.0


def test_rounds_end_with_their_time_by_default_that_of_the_search(tmp_path: Path) -> None:
    def rounds_s(more: str, time: str = ", time: 3m") -> float:
        many = {"finalists": f"20{more}", "rounds": 10, "soak": "0", "time": time}
        return estimate(tmp_path, **many).proof_s - 2 * (DEPLOY_S + POINT_S - 1.0)

    assert rounds_s(", time: 1m") == pytest.approx(60.0)
    assert rounds_s("") == pytest.approx(180.0)
    assert rounds_s("", ", time: 30s") == pytest.approx(120.0)


def test_losers_cost_one_measurement_and_new_incumbents_more(tmp_path: Path) -> None:
    search_s = estimate(tmp_path).search_s - 20 * DEPLOY_S
    assert 20 * POINT_S < search_s < 20 * 5 * POINT_S


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


def test_without_an_earlier_run_the_time_is_said_to_be_about_so_long() -> None:
    assert Estimate(60.0, 90.0).sentence == "the run takes about 2:30 (search 1:00, proof 1:30)"


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


def ended(store: RunStore, job: Job, status: str = "improved", **spec: object) -> None:
    """A run that took 6:05: the start 45 s, the search 2:00, the proof 3:10, writing 10 s."""
    kept = manifest_of(Toy(model=job.spec.name), store.run_id)
    store.write_manifest(replace(kept, spec={**job.spec.plain(), **spec}).to_json())
    candidate, own = candidate_of({"n": 1}), TrialTime(1.0, 30.0, 88.0, 1.0)
    store.append_trial(Trial(0, candidate, TrialState.FAILED, time=own))
    worked = TrialTime(measuring_s=500.0)
    store.append_trial(
        Trial(1, candidate, TrialState.FAILED, time=worked, worker=Worker("another", "all"))
    )
    took = {"wall_s": 365.0, "starting_s": 45.0, "writing_s": 10.0}
    store.write_result({"status": status, "time": took})


def test_the_time_of_a_run_is_told_from_the_last_one(job: Job, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, f"20260101-000000-{job.spec.name}-abcd")
    assert foresee_run(tmp_path, job) == estimate_run(job)
    ended(store, job)
    told = "the last run took 6:05 (search 2:00, proof 3:10)"
    assert foresee_run(tmp_path, job).text == foresee_run(tmp_path, job).sentence == told


@pytest.mark.parametrize(
    "last",
    [
        {"status": "interrupted"},
        {"status": "failed"},
        {"budget": {"trials": 500}},
        {"confirm": {"soak": "10m"}},
    ],
)
def test_a_run_that_broke_off_or_had_other_limits_tells_nothing_of_the_next_ones_time(
    job: Job, tmp_path: Path, last: dict[str, Any]
) -> None:
    ended(RunStore.create(tmp_path, f"20260101-000000-{job.spec.name}-abcd"), job, **last)
    assert foresee_run(tmp_path, job) == estimate_run(job)


def test_without_an_earlier_run_nothing_is_seen(job: Job, tmp_path: Path) -> None:
    assert seen_before(tmp_path / "results", job) is None


def test_a_slow_models_run_is_foreseen_as_longer(job: Job) -> None:
    fast, slow, large = (estimate_run(job, s) for s in (Seen(), Seen(8.0), Seen(None, 60.0)))
    for foreseen in (slow, large):
        assert foreseen.search_s > fast.search_s
        assert foreseen.proof_s > fast.proof_s
