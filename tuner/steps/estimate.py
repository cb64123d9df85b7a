"""About how long a run will take, from what an earlier run of the model has shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from statistics import median

from tuner.bench.evaluate import MOST_PROBES
from tuner.confirm.gain import MOST
from tuner.confirm.soak import LASTS_S, SHARES, claim_window_s, most_claim_window_s, remembered_s
from tuner.errors import SpecError, TunerError
from tuner.load.probes.overload import overload_window
from tuner.load.streams_load import part_s
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import lengthen
from tuner.run.confirmation import Repeat, Role
from tuner.run.store import RunStore
from tuner.score.judge import tail_slo
from tuner.score.trial import Trial
from tuner.spec.workload import ClosedArrivals
from tuner.steps.job import Job
from tuner.steps.rig import curve_window, soak_of, why_no_overload, window_of
from tuner.steps.window_length import most_probes

#: Seen on small Python models: a deploy or a fresh server, and perf_analyzer's own start and end.
DEPLOY_S, OVERHEAD_S = 1.8, 0.6
#: A round of confirmation measures a config just below and just above its capacity.
MEASUREMENTS_PER_ROUND = 2
#: Fresh servers of winner and current config: to compare their answers, and to overload each.
ANSWERS, OVERLOADS = 2, 2
#: New incumbents per e-fold of trials: twice the records of a random order, since a search learns.
INCUMBENTS = 2.0


#: Loads of the model are counted in words where each takes so long.
SLOW_LOAD_S = 10.0


@dataclass(frozen=True)
class Seen:
    """What is known of the model.

    Attributes:
        rate_per_s: Requests it answers within the SLOs; None: enough that no window is longer.
        load_s: Of a load of it on a server.
        claim_window_s: Length of a confirmation's windows; 0: no longer than the search's, as far
            as is known.
        soak_s: Length of soak that its latency needs; 0: no more than the spec's, as far as is
            known.
    """

    rate_per_s: float | None = None
    load_s: float = DEPLOY_S
    claim_window_s: float = 0.0
    soak_s: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """Seconds by stage.

    Attributes:
        search_s: An upper limit; patience may end it earlier.
        confirmation_s: Up to its first look at the rounds; `MOST` times that up to the last one.
        after_s: Undoing changes, comparing answers, the soak, overloading.
        loads: Most loads of the model with one look, each of which takes ``load_s``.
    """

    search_s: float
    confirmation_s: float
    after_s: float
    loads: int = 0
    load_s: float = DEPLOY_S

    @property
    def proof_s(self) -> float:
        """What follows the search, at most."""
        return MOST * self.confirmation_s + self.after_s

    @property
    def text(self) -> str:
        """`about 4.0 to 5.5 minutes: search 2.0, confirmation 1.5 to 3.0, the rest 0.5`."""
        least_s = self.search_s + self.confirmation_s + self.after_s
        total = f"{_minutes(least_s)} to {_minutes(self.search_s + self.proof_s)}"
        confirmation = f"{_minutes(self.confirmation_s)} to {_minutes(MOST * self.confirmation_s)}"
        told = (
            f"about {total} minutes: search {_minutes(self.search_s)}, confirmation "
            f"{confirmation}, the rest {_minutes(self.after_s)}"
        )
        if self.load_s < SLOW_LOAD_S:
            return told
        return f"{told}; {self.loads} loads of the model, {self.load_s:.0f} s each, are in it"


def estimate_run(job: Job, seen: Seen = Seen()) -> Estimate:
    """From the budget, the window and what the confirmation will measure."""
    spec, plan, load_s = job.spec, job.plan, seen.load_s
    point_s, claim_s = _measurement_s(job, seen), _measurement_s(job, seen, seen.claim_window_s)
    trials = min(spec.budget.trials, job.space.size().count)
    search_s = trials * load_s + _points(job, trials, seen) * point_s
    if spec.budget.time is not None:
        search_s = min(search_s, float(spec.budget.time))
    sides = 1 + min(spec.confirm.finalists, trials)
    per_round = 1 if plan.listed is not None else MEASUREMENTS_PER_ROUND
    confirmation_s = spec.confirm.rounds * sides * (load_s + per_round * claim_s)
    # A change that matters costs one measurement, one that does not as many as there are rounds.
    fields = len(spec.server.space) + sum(len(m.space) for m in spec.models.values())
    undone = fields * (1 + spec.confirm.rounds) / 2
    soak_s, overload_s = _soak_s(job, seen) + _curve_s(job, seen), _overload_s(job)
    last = ANSWERS + (1 if soak_s else 0) + (OVERLOADS if overload_s else 0)
    after_s = undone * (load_s + claim_s) + last * load_s + soak_s + OVERLOADS * overload_s
    loads = round(trials + spec.confirm.rounds * sides + undone + last)
    return Estimate(search_s, confirmation_s, after_s, loads, load_s)


def refuse_too_short(job: Job, seen: Seen | None) -> None:
    """Before anything of a new run is started.

    Raises:
        SpecError: The time of the budget is over before two configs can have been measured.
    """
    known, time_s = seen or Seen(), job.spec.budget.time
    load_s, point_s = 2 * known.load_s, _measurement_s(job, known)
    if time_s is not None and time_s < load_s + 2 * point_s:
        enough_s = math.ceil(load_s + _points(job, 2, known) * point_s)
        raise SpecError(
            f"the budget's time is {time_s}, and two configs take at least "
            f"{load_s + 2 * point_s:.0f} s",
            f"set budget.time or --time-budget to {enough_s}s or more, which finds the capacity "
            "of two, or shorten workload.window",
        )


def _points(job: Job, trials: int, seen: Seen) -> float:
    """Measurements of the search: a loser costs one, a new incumbent takes the most."""
    if job.plan.listed is not None:
        return trials * (1 + len(job.plan.listed)) / 2
    incumbents = min(trials, 1.0 + INCUMBENTS * math.log(trials))
    most = (
        MOST_PROBES if seen.rate_per_s is None else most_probes(job.spec, job.plan, seen.rate_per_s)
    )
    return trials + incumbents * (most - 1)


def _measurement_s(job: Job, seen: Seen, least_s: float | None = None) -> float:
    """One measurement; at low rates it is longer, as long as the percentile needs.

    ``least_s``: of one in the confirmation; None: in the search.
    """
    spec = job.spec
    most_s = most_claim_window_s(spec.workload)
    window = window_of(spec, _load(job, seen), brief=least_s is None)
    window = lengthen(window, min(least_s or 0.0, most_s))
    arrivals = spec.workload.arrivals
    starts = arrivals.restarts if isinstance(arrivals, ClosedArrivals) else 1
    each_s = part_s(window.duration_s, starts)
    return starts * (window.warmup_s + each_s + window.tail_s + OVERHEAD_S)


def _load(job: Job, seen: Seen) -> LoadPoint:
    searched = job.plan.levels.highest if seen.rate_per_s is None else seen.rate_per_s
    return LoadPoint(job.plan.arrivals, searched if job.plan.listed is None else job.plan.listed[0])


def _soak_s(job: Job, seen: Seen) -> float:
    """One long load on what is written; soaks at lowered loads are not included."""
    if float(job.spec.confirm.soak) == 0.0:
        return 0.0
    return soak_of(job.spec, _load(job, seen), least_s=seen.soak_s).total_s + OVERHEAD_S


def _curve_s(job: Job, seen: Seen) -> float:
    """The short loads around what the soak shows, where there are any."""
    if float(job.spec.confirm.soak) == 0.0 or why_no_overload(job.spec, job.plan):
        return 0.0
    window = curve_window(job.spec, _load(job, seen))
    return len(SHARES) * (window.total_s + OVERHEAD_S) if window.duration_s <= LASTS_S else 0.0


def _overload_s(job: Job) -> float:
    """One overload, where there are any."""
    slo = tail_slo(job.spec.slos)
    if slo is None or why_no_overload(job.spec, job.plan):
        return 0.0
    return overload_window(slo).total_s + OVERHEAD_S


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"


#: The ways of deploying a trial that load the model.
_LOADED = ("reload", "restart")


def seen_before(results: Path, job: Job) -> Seen | None:
    """By the newest run of this model that has trials; None without one, or one that is damaged."""
    for directory in sorted(results.glob(f"*-{escape(job.spec.name)}-*"), reverse=True):
        try:
            store = RunStore.open(directory)
            trials = store.trials() if store.manifest().name == job.spec.name else []
            if trials:
                return seen_in(trials, store.confirmation(), job)
        except (TunerError, OSError, LookupError, TypeError, ValueError):
            continue
    return None


def seen_in(trials: Sequence[Trial], repeats: Sequence[Repeat], job: Job) -> Seen:
    """What a run shows of its model."""
    loads = [t.time.deploying_s for t in trials if t.deployment in _LOADED]
    rate = next((level for t in trials if (level := t.sustained_level)), None)
    load_s = median(loads) if loads else Seen().load_s
    windows_s = [r.point.measurement.duration_s for r in repeats if not r.alone]
    foreseen_s = [claim_window_s(t.points, job.spec.slos) for t in trials]
    return Seen(
        rate if job.plan.arrivals.open_loop else None,
        load_s,
        median(windows_s or foreseen_s or [0.0]),
        remembered_s([r.point for r in repeats if r.role is Role.SOAK]),
    )
