"""What an earlier run of the model tells of the next one: its rate, and how long all took."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from pathlib import Path
from statistics import median

from tuner.bench.levels import sustained_level
from tuner.confirm.soak import remembered_s
from tuner.errors import TunerError
from tuner.report.side import Repeat, repeat_of
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
            if trials:
                return _seen(trials, [repeat_of(row) for row in store.confirmation()], job)
        except (TunerError, OSError, LookupError, TypeError, ValueError):
            continue
    return None


def _seen(trials: Sequence[Trial], repeats: Sequence[Repeat], job: Job) -> Seen:
    loads = [t.time.deploying_s for t in trials if t.deployment in _LOADED]
    rate = next((level for t in trials if (level := sustained_level(t))), None)
    load_s = median(loads) if loads else Seen().load_s
    windows_s = [r.point.measurement.duration_s for r in repeats if not r.of_soak]
    return Seen(
        rate if job.plan.arrivals.open_loop else None,
        load_s,
        median(windows_s or [0.0]),
        remembered_s([r.point for r in repeats if r.of_soak]),
    )
