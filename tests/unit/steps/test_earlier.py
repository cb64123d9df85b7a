"""What an earlier run tells of the next one's time."""

from __future__ import annotations

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
from tuner.steps.estimate import DEPLOY_S, Seen, estimate_run, seen_before
from tuner.steps.job import Job


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
