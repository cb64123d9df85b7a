"""How a search stands: the gain so far, and how long until the verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders.jobs import SPEC, a_job
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_server
from builders.reasons import said

from tuner.prepare.job import Job
from tuner.score.point import judge_point, score_points
from tuner.score.trial import Trial, TrialState, TrialTime
from tuner.search.estimate import estimate_run, seen_in
from tuner.search.outlook import Ahead, outlook_of
from tuner.space.candidate import Candidate


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path, SPEC + "budget: {{time: 2m}}\n")


def trial(job: Job, number: int, candidate: Candidate, level: float, capacity: float) -> Trial:
    point = judge_point([P99_40MS, NO_ERRORS], synthetic_server(level, capacity))
    state = TrialState.MEASURED if point.passed else TrialState.PRUNED
    score = score_points(job.spec.objective, [point])
    return Trial(number, candidate, state, points=(point,), score=score)


def test_the_time_left_is_what_the_plan_says_less_what_is_used(job: Job) -> None:
    plan = estimate_run(job)
    assert outlook_of(job, []).left_s == plan.total_s
    assert outlook_of(job, [], 30.0).left_s == plan.search_s - 30.0 + plan.proof_s
    assert outlook_of(job, [], 1e6).left_s == plan.proof_s
    first = trial(job, 0, job.space.current, 900.0, 1000.0)
    slow = [replace(first, deployment="reload", time=TrialTime(deploying_s=60.0))]
    assert outlook_of(job, slow, 1e6).left_s == estimate_run(job, seen_in(slow, job)).proof_s
    assert outlook_of(job, slow, 1e6).left_s > plan.proof_s


def test_each_part_of_the_proof_that_is_over_shortens_the_time_left(job: Job) -> None:
    plan = estimate_run(job)
    left = [outlook_of(job, [], ahead=part).left_s for part in Ahead]
    assert left == [plan.total_s, plan.proof_s, plan.after_rounds_s, plan.soak_s]
    assert left == sorted(left, reverse=True)
    assert plan.soak_s > 30.0


def test_the_gain_is_over_the_current_config_and_at_least_what_is_known_of_it(job: Job) -> None:
    current = job.space.current
    other = next(c for c in job.space.enumerate() if c != current)
    best = trial(job, 0, other, 900.0, 1000.0)
    assert outlook_of(job, [best], 0.0).gain is None
    at_current = trial(job, 1, current, 300.0, 1000.0)
    assert outlook_of(job, [at_current], 0.0).gain is None
    outlook = outlook_of(job, [best, at_current], 0.0)
    assert (outlook.gain, outlook.at_least) == (pytest.approx(3.0), False)
    lost = trial(job, 1, current, 900.0, 100.0)
    outlook = outlook_of(job, [best, lost], 0.0)
    assert outlook.at_least
    assert outlook.gain == pytest.approx(9.0, rel=0.2)
    failed = Trial(1, current, TrialState.FAILED, reason=said("x"))
    assert outlook_of(job, [best, failed], 0.0).gain is None
