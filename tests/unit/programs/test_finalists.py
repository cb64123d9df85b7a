"""Which configs are measured again."""

from __future__ import annotations

from builders.candidates import candidate_of
from builders.measurements import NO_ERRORS, P99_40MS, synthetic_measurement

from tuner.programs.run.finalists import finalists_of
from tuner.score.point import Point, judge_point, score_points
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.model import Spec

SPEC = Spec.model_validate(
    {
        "model": "m",
        "repository": "r",
        "slo": ["p99_latency <= 40ms"],
        "space": {"instance_group.count": {"int": [1, 6]}},
    }
)
CURRENT, *OTHERS = (candidate_of({"instance_group.count": n}) for n in range(1, 7))
NEAR = 1.10


def at(level: float, stress: float) -> Point:
    return judge_point((P99_40MS, NO_ERRORS), synthetic_measurement(level, 40e3 * stress))


def trial(number: int, candidate: Candidate, state: TrialState, *points: Point) -> Trial:
    judged = points[:1] if state is TrialState.PRUNED else points
    return Trial(number, candidate, state, points, score_points(SPEC.objective, judged))


def numbers(*trials: Trial) -> list[int]:
    return [t.number for t in finalists_of(trials, SPEC, CURRENT, NEAR)]


MEASURED, PRUNED = TrialState.MEASURED, TrialState.PRUNED
NOW = trial(0, CURRENT, MEASURED, at(100, 0.95))
BEST = trial(1, OTHERS[0], MEASURED, at(200, 0.95), at(210, 1.3))


def test_two_finalists_are_two_where_one_lost_to_the_best_by_noise() -> None:
    far = trial(2, OTHERS[1], PRUNED, at(204, 1.4))
    near = trial(3, OTHERS[2], PRUNED, at(204, 1.09), at(200, 1.04))
    nearer = trial(4, OTHERS[3], PRUNED, at(204, 1.07), at(200, 1.01))
    assert numbers(NOW, BEST, far, near) == [1, 3]
    assert numbers(NOW, BEST, far, near, nearer) == [1, 4]


def test_what_was_once_measured_far_beyond_its_bound_is_no_near_miss() -> None:
    assert numbers(NOW, BEST, trial(2, OTHERS[1], PRUNED, at(204, 1.09), at(200, 1.2))) == [1]
    informative = trial(2, OTHERS[1], PRUNED, at(204, 1.5), at(150, 0.8))
    assert numbers(NOW, BEST, informative) == [1]


def test_one_that_nearly_stood_what_is_worth_a_change_is_measured_again() -> None:
    sustained = trial(1, OTHERS[0], MEASURED, at(102, 1.05), at(100, 0.93))
    assert numbers(NOW, sustained) == [1]
    missed = trial(1, OTHERS[0], MEASURED, at(102, 1.2), at(100, 0.93))
    assert numbers(NOW, missed) == []


def test_one_that_lost_to_the_current_config_twice_is_not() -> None:
    assert numbers(NOW, trial(1, OTHERS[0], PRUNED, at(102, 1.05), at(100, 1.04))) == []
