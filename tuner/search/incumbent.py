"""Which trial is best."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.run.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.objective import Goal


def ranked(trials: Sequence[Trial], goal: Goal, current: Candidate) -> list[Trial]:
    """Fully measured trials, best first.

    Feasible ones by objective, then infeasible ones by how far they miss the SLOs; among equals
    the one that changes less of the current config, then the earlier one. A pruned trial lost to
    one that is ranked; its score is only a bound.
    """
    sign = -1.0 if goal is Goal.MAXIMIZE_GOODPUT else 1.0

    def order(trial: Trial) -> tuple[bool, float, float, int, int]:
        score = trial.score
        assert score is not None
        missed = 0.0 if score.feasible else score.violation
        distance = changes(trial.candidate, current)
        return (not score.feasible, missed, sign * score.value, distance, trial.number)

    measured = (t for t in trials if t.state is TrialState.MEASURED and t.score is not None)
    return sorted(measured, key=order)


def incumbent(trials: Sequence[Trial], goal: Goal, current: Candidate) -> Trial | None:
    """The best trial that meets the SLOs; None when none does."""
    best = next(iter(ranked(trials, goal, current)), None)
    if best is None or best.score is None or not best.score.feasible:
        return None
    return best


def trials_since_best(trials: Sequence[Trial], goal: Goal, current: Candidate) -> int:
    """Trials finished after the best one; all of them when none was measured in full."""
    best = next(iter(ranked(trials, goal, current)), None)
    return len(trials) if best is None else trials[-1].number - best.number


def changes(candidate: Candidate, current: Candidate) -> int:
    """Fields and server arguments in which the two differ."""
    paths = candidate.fields.keys() | current.fields.keys()
    fields = sum(candidate.fields.get(p) != current.fields.get(p) for p in paths)
    return fields + len(set(candidate.server_args) ^ set(current.server_args))
