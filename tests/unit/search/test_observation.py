from __future__ import annotations

import optuna
import pytest
from builders.candidates import candidate_of, values_of
from builders.spaces import BATCH, DELAY, INSTANCES, USUAL, space_of

from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.optuna_trial import CONSTRAINTS, FAILED_VIOLATION, frozen_trial, observe
from tuner.spec.slo import Goal

ANY = candidate_of({})
GOODPUT = Goal.MAXIMIZE_GOODPUT


def trial(state: TrialState, score: Score | None) -> Trial:
    return Trial(3, ANY, state, score=score)


def test_a_measured_trial_tells_its_score() -> None:
    seen = observe(trial(TrialState.MEASURED, Score(300.0, True, 0.0, 0)), GOODPUT)
    assert (seen.value, seen.violation) == (300.0, 0.0)


def test_a_missed_slo_is_a_constraint() -> None:
    seen = observe(trial(TrialState.MEASURED, Score(30.0, False, 0.4, None)), GOODPUT)
    assert (seen.value, seen.violation) == (30.0, 0.4)


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


def test_optuna_reads_the_params_and_the_constraint() -> None:
    space = space_of(USUAL)
    candidate = space.candidate(values_of({INSTANCES: 2, BATCH: 8, DELAY: 0}))
    score = Score(30.0, False, 0.4, None)
    frozen = frozen_trial(space, GOODPUT, Trial(3, candidate, TrialState.MEASURED, score=score))
    assert frozen.state is optuna.trial.TrialState.COMPLETE
    assert frozen.params[f"m/{BATCH}"] == "8"
    assert frozen.system_attrs[CONSTRAINTS] == (0.4,)


def test_optuna_counts_a_failed_trial_as_the_worst() -> None:
    space = space_of(USUAL)
    failed = Trial(
        3, space.candidate(values_of({INSTANCES: 2, BATCH: 8, DELAY: 0})), TrialState.FAILED
    )
    frozen = frozen_trial(space, GOODPUT, failed)
    assert frozen.state is optuna.trial.TrialState.PRUNED
    assert frozen.value is None
    assert frozen.system_attrs[CONSTRAINTS] == (FAILED_VIOLATION,)
