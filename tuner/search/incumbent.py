"""The best trial, and others that may be as good."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.meter.evaluate import nearly
from tuner.score.judge import SloOutcome
from tuner.score.point import Point
from tuner.score.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal


def ranked(trials: Sequence[Trial], goal: Goal, current: Candidate) -> list[Trial]:
    """Fully measured trials, the best first: feasible ones by score, others by violation.

    Among equals, the one with fewer changes of the current config comes first, then the earlier.
    """

    def order(trial: Trial) -> tuple[tuple[bool, float, float], int, int]:
        return trial.order(goal), trial.candidate.differences(current), trial.number

    measured = (t for t in trials if t.state is TrialState.MEASURED and t.score is not None)
    return sorted(measured, key=order)


def incumbent(trials: Sequence[Trial], goal: Goal, current: Candidate) -> Trial | None:
    """The best trial that met the SLOs; None if none did."""
    return next(iter(leaders(trials, goal, current)), None)


def leaders(trials: Sequence[Trial], goal: Goal, current: Candidate) -> list[Trial]:
    """Trials that met the SLOs, the best first."""
    return [t for t in ranked(trials, goal, current) if t.score and t.score.feasible]


def reached_level(trial: Trial, near_miss: float) -> float | None:
    """The highest level without a miss of an SLO beyond the noise; None without one."""
    levels = [p.level for p in trial.points if _reached(p, near_miss)]
    return max(levels, default=None)


def near_misses(trials: Sequence[Trial], near_miss: float) -> list[Trial]:
    """Trials that lost their race within the noise at each measurement, the best first."""

    def order(trial: Trial) -> tuple[float, float, int]:
        lowest = min(trial.points, key=lambda p: p.level)
        return -lowest.level, lowest.slo_utilisation or 0.0, trial.number

    pruned = (t for t in trials if t.state is TrialState.PRUNED and t.points)
    return sorted((t for t in pruned if all(_reached(p, near_miss) for p in t.points)), key=order)


def _reached(point: Point, near_miss: float) -> bool:
    """Whether the point missed no SLO beyond the noise; too few answers are no miss."""
    return point.outcome is not SloOutcome.MISSED or nearly(point, near_miss)
