"""Which trial is best, and which may be as good."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.meter.evaluate import nearly
from tuner.score.judge import SloOutcome
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal


def ranked(trials: Sequence[Trial], goal: Goal, current: Candidate) -> list[Trial]:
    """Fully measured trials, best first: feasible ones by objective, others by their misses.

    Among equals the one that changes less of the current config comes first, then the earlier one.
    """

    def order(trial: Trial) -> tuple[tuple[bool, float, float], int, int]:
        return trial.order(goal), trial.candidate.differences(current), trial.number

    measured = (t for t in trials if t.state is TrialState.MEASURED and t.score is not None)
    return sorted(measured, key=order)


def incumbent(trials: Sequence[Trial], goal: Goal, current: Candidate) -> Trial | None:
    """The best trial that meets the SLOs; None when none does."""
    return next(iter(leaders(trials, goal, current)), None)


def leaders(trials: Sequence[Trial], goal: Goal, current: Candidate) -> list[Trial]:
    """Trials that met the SLOs, best first."""
    return [t for t in ranked(trials, goal, current) if t.score and t.score.feasible]


def reached_level(trial: Trial, near_miss: float) -> float | None:
    """The highest load at which it met every SLO, or missed none by more than noise."""
    levels = [p.level for p in trial.points if _reached(p, near_miss)]
    return max(levels, default=None)


def near_misses(trials: Sequence[Trial], near_miss: float) -> list[Trial]:
    """Trials that lost their race by no more than noise whenever they were measured, best first."""

    def order(trial: Trial) -> tuple[float, float, int]:
        lowest = min(trial.points, key=lambda p: p.level)
        return -lowest.level, lowest.slo_utilisation or 0.0, trial.number

    pruned = (t for t in trials if t.state is TrialState.PRUNED and t.points)
    return sorted((t for t in pruned if all(_reached(p, near_miss) for p in t.points)), key=order)


def _reached(point: Point, near_miss: float) -> bool:
    """Too few answers show no loss."""
    return point.outcome is not SloOutcome.MISSED or nearly(point, near_miss)
