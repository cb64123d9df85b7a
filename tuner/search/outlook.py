"""The outlook of a run: the gain of the best config so far, and the time until the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

from tuner.prepare.job import Job
from tuner.progress.events import Outlook
from tuner.score.trial import Aim, Trial, trial_of
from tuner.search.estimate import estimate_run, seen_in
from tuner.search.incumbent import incumbent


class Ahead(Enum):
    """The part of a run that begins next; all later parts follow it."""

    SEARCH = "search"
    ROUNDS = "rounds"
    UNDOING = "undoing"
    SOAK = "soak"


def outlook_of(
    job: Job, trials: Sequence[Trial], elapsed_s: float = 0.0, ahead: Ahead = Ahead.SEARCH
) -> Outlook:
    """The outlook by the trials so far; ``elapsed_s``: seconds that the search has taken."""
    expected = estimate_run(job, seen_in(trials, job))
    left_s = {
        Ahead.SEARCH: max(expected.search_s - elapsed_s, 0.0) + expected.proof_s,
        Ahead.ROUNDS: expected.proof_s,
        Ahead.UNDOING: expected.after_rounds_s,
        Ahead.SOAK: expected.soak_s,
    }[ahead]
    current = job.space.current
    best = incumbent(trials, job.spec.objective.goal, current)
    current_trial = trial_of(current, trials)
    if best is None or current_trial is None or best.candidate == current_trial.candidate:
        return Outlook(left_s)
    aim = Aim(job.spec.objective)
    known, ours = aim.measured(current_trial), aim.measured(best)
    least = aim.bound(current_trial) if known is None else known
    gain = None if ours is None or least is None else math.exp(ours - least)
    return Outlook(left_s, gain, at_least=known is None)
