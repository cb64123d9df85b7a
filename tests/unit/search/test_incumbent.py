from __future__ import annotations

from builders.candidates import candidate_of
from builders.reasons import said

from tuner.score.point import Score
from tuner.score.trial import Trial, TrialState
from tuner.search.incumbent import incumbent, ranked
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal

CURRENT = candidate_of({"a": 1, "b": None})
NEAR = candidate_of({"a": 2, "b": None})
FAR = candidate_of({"a": 2, "b": 5}, 1024)


def measured(
    number: int, value: float, candidate: Candidate = NEAR, violation: float = 0.0
) -> Trial:
    score = Score(value, feasible=violation == 0, violation=violation, best_point=None)
    return Trial(number, candidate, TrialState.MEASURED, score=score)


def test_the_highest_goodput_is_best() -> None:
    trials = [measured(0, 10.0), measured(1, 30.0), measured(2, 20.0)]
    assert [t.number for t in ranked(trials, Goal.MAXIMIZE_GOODPUT, CURRENT)] == [1, 2, 0]


def test_the_lowest_of_a_minimised_metric_is_best() -> None:
    trials = [measured(0, 10.0), measured(1, 30.0), measured(2, 5.0)]
    assert [t.number for t in ranked(trials, Goal.MINIMIZE, CURRENT)] == [2, 0, 1]


def test_what_meets_the_slos_comes_first_then_the_nearest_miss() -> None:
    trials = [measured(0, 99.0, violation=2.0), measured(1, 98.0, violation=0.1), measured(2, 1.0)]
    assert [t.number for t in ranked(trials, Goal.MAXIMIZE_GOODPUT, CURRENT)] == [2, 1, 0]


def test_among_equals_the_smaller_change_wins() -> None:
    trials = [measured(0, 10.0, FAR), measured(1, 10.0, NEAR), measured(2, 10.0, NEAR)]
    assert [t.number for t in ranked(trials, Goal.MAXIMIZE_GOODPUT, CURRENT)] == [1, 2, 0]


def test_a_bound_or_a_failure_is_never_the_incumbent() -> None:
    bound = Trial(1, NEAR, TrialState.PRUNED, score=Score(99.0, False, 0.1, None))
    failed = Trial(2, FAR, TrialState.FAILED, reason=said("refused"))
    trials = [measured(0, 10.0), bound, failed]
    best = incumbent(trials, Goal.MAXIMIZE_GOODPUT, CURRENT)
    assert best is not None
    assert best.number == 0


def test_there_is_no_incumbent_while_nothing_meets_the_slos() -> None:
    trials = [measured(0, 10.0, violation=0.5)]
    assert incumbent(trials, Goal.MAXIMIZE_GOODPUT, CURRENT) is None


def test_a_change_is_a_field_or_the_size_of_the_cache() -> None:
    assert [c.differences(CURRENT) for c in (CURRENT, NEAR, FAR)] == [0, 1, 3]
    assert candidate_of({}).differences(CURRENT) == 1
    assert candidate_of({}, 1024).differences(candidate_of({}, 2048)) == 1
