"""What an earlier run of the model tells of the next one: its rate, and what a load takes."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from pathlib import Path
from statistics import median

from tuner.bench.levels import sustained_level
from tuner.errors import TunerError
from tuner.run.store import RunStore
from tuner.run.trial import Trial
from tuner.steps.estimate import Seen
from tuner.steps.job import Job

#: How a trial came onto the server where that was a load of the model.
_LOADED = ("reload", "restart")


def seen_before(results: Path, job: Job) -> Seen | None:
    """By the newest run of this model that has trials; None without one, or one that is damaged."""
    for directory in sorted(results.glob(f"*-{escape(job.spec.model)}-*"), reverse=True):
        try:
            store = RunStore.open(directory)
            trials = store.trials() if store.manifest().model == job.spec.model else []
        except (TunerError, OSError):
            continue
        if trials:
            return _seen(trials, job)
    return None


def _seen(trials: Sequence[Trial], job: Job) -> Seen:
    loads = [t.time.deploying_s for t in trials if t.deployment in _LOADED]
    rate = next((level for t in trials if (level := sustained_level(t))), None)
    load_s = median(loads) if loads else Seen().load_s
    return Seen(rate if job.plan.arrivals.open_loop else None, load_s)
