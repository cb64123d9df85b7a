from __future__ import annotations

import pytest
from builders.candidates import candidate_of

from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.optuna_trial import FAILED_VIOLATION, observe
from tuner.spec.objective import Goal

ANY = candidate_of({})
GOODPUT = Goal.MAXIMIZE_GOODPUT


def trial(state: TrialState, score: Score | None) -> Trial:
    return Trial(3, ANY, state, score=score)


@pytest.mark.parametrize("violation", [0.0, 0.4])
def test_a_measured_trial_tells_its_score_and_a_missed_slo_is_a_constraint(
    violation: float,
) -> None:
    score = Score(300.0, violation == 0.0, violation, None)
    seen = observe(trial(TrialState.MEASURED, score), GOODPUT)
    assert (seen.value, seen.violation) == (300.0, violation)


def test_a_missed_slo_without_a_size_is_still_infeasible() -> None:
    seen = observe(trial(TrialState.MEASURED, Score(30.0, False, 0.0, None)), GOODPUT)
    assert seen.violation > 0


@pytest.mark.parametrize("goal", Goal)
def test_a_loser_is_feasible_and_ranked_by_how_badly_it_lost(goal: Goal) -> None:
    close, far = (
        observe(trial(TrialState.PRUNED, Score(300.0, False, v, None)), goal) for v in (0.1, 2.0)
    )
    assert close.violation == far.violation == 0
    assert close.value is not None
    assert far.value is not None
    better_first = [300.0, close.value, far.value]
    assert better_first == sorted(better_first, reverse=goal is GOODPUT)


def test_a_failed_trial_is_worse_than_any_missed_slo() -> None:
    seen = observe(Trial(3, ANY, TrialState.FAILED, reason="refused"), GOODPUT)
    assert seen.value is None
    assert seen.violation == FAILED_VIOLATION
