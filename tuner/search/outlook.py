"""How a search stands: its best config beside the current one, and the time until the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.bench.events import Outlook
from tuner.bench.job import Job
from tuner.score.trial import Aim, Trial
from tuner.search.estimate import estimate_run, seen_in


def outlook_of(job: Job, trials: Sequence[Trial], best: Trial | None, elapsed_s: float) -> Outlook:
    """What the plan says for what is known by now, less what is used."""
    expected = estimate_run(job, seen_in(trials, job))
    search_s = max(expected.search_s - elapsed_s, 0.0)
    own = next((t for t in trials if t.candidate == job.space.current), None)
    if best is None or own is None or best.candidate == own.candidate:
        return Outlook(search_s + expected.proof_s)
    aim = Aim(job.spec.objective, job.spec.slos, job.plan)
    known, ours = aim.measured(own), aim.measured(best)
    least = aim.bound(own) if known is None else known
    gain = None if ours is None or least is None else math.exp(ours - least)
    return Outlook(search_s + expected.proof_s, gain, at_least=known is None)
