"""What an earlier run tells of the next one's time."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from synthetic import NO_ERRORS, P99_40MS, synthetic_server
from unit.run.test_store import a_manifest
from unit.steps.test_opening import REPOSITORY, SPEC

from tuner.run.store import RunStore
from tuner.run.trial import Trial, TrialState, TrialTime
from tuner.score.point import judge_point, score_points
from tuner.space.candidate import Candidate
from tuner.spec.objective import Objective
from tuner.steps.earlier import seen_before
from tuner.steps.estimate import DEPLOY_S, Seen, estimated
from tuner.steps.job import Job, Request, prepare


@pytest.fixture
def job(tmp_path: Path) -> Job:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(repository=REPOSITORY))
    return prepare(Request(spec=spec))


def an_earlier_run(results: Path, job: Job, rate: float, load_s: float, when: str) -> None:
    store = RunStore.create(results, f"{when}-{job.spec.model}-abcd")
    store.write_manifest(asdict(replace(a_manifest(), model=job.spec.model)))
    points = tuple(
        judge_point([P99_40MS, NO_ERRORS], synthetic_server(rate, 2 * rate, 100.0)) for _ in "1"
    )
    score = score_points(Objective.goodput(), points)
    for number, kind in enumerate(["unchanged", "reload", "restart"]):
        took = TrialTime(deploying_s=0.0 if kind == "unchanged" else load_s)
        store.append_trial(
            Trial(
                number,
                Candidate({"n": number}),
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
    (results / f"20260103-000000-{job.spec.model}-dead").mkdir()
    assert seen_before(results, job) == Seen(8.0, 60.0)


def test_without_an_earlier_run_nothing_is_seen(job: Job, tmp_path: Path) -> None:
    assert seen_before(tmp_path / "results", job) is None


def test_a_slow_models_run_is_foreseen_as_long_as_it_is(job: Job) -> None:
    fast, slow = estimated(job), estimated(job, Seen(8.0))
    assert slow.confirmation_s > 10 * fast.confirmation_s
    assert slow.load_s == DEPLOY_S


def test_loads_that_take_a_minute_are_counted_and_told(job: Job) -> None:
    fast, large = estimated(job), estimated(job, Seen(None, 60.0))
    counted = large.loads * (60.0 - DEPLOY_S)
    more = sum(
        getattr(large, n) - getattr(fast, n) for n in ("search_s", "confirmation_s", "after_s")
    )
    assert more == pytest.approx(counted, rel=0.1)
    assert large.text.endswith(f"; {large.loads} loads of the model, 60 s each, are in it")
    assert "loads" not in fast.text
