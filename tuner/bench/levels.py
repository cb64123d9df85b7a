"""What a trial's measurements say about the load it sustains."""

from __future__ import annotations

from tuner.score.capacity import Bracket
from tuner.score.trial import Trial


def sustained_level(trial: Trial) -> float | None:
    """The load that the score is for; None where the trial met the SLOs at none.

    It is the highest load at which every SLO was met; in a closed loop, the one of those with the
    highest throughput.
    """
    if trial.score is None or trial.score.best_point is None:
        return None
    return trial.points[trial.score.best_point].level


def capacity_level(trial: Trial) -> float | None:
    """Where the trial's measurements put its capacity; None when it met the SLOs at no load."""
    level = sustained_level(trial)
    if level is None:
        return None
    bracket = Bracket.of([p for p in trial.points if p.level >= level])
    beyond = bracket.floor is not None and bracket.floor.level > level
    return level if beyond else bracket.capacity()  # more clients that got less
