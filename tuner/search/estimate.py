"""Estimates of how long measurements and whole runs take, before they start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

from tuner.errors import SpecError
from tuner.load.restarts import part_s
from tuner.measurement.measurement import LoadPoint
from tuner.measurement.window import soak_of, window_of
from tuner.prepare.job import Job
from tuner.record.status import Status
from tuner.record.store import RunStore, find_newest
from tuner.score.next_load import LoadPlan
from tuner.score.trial import Trial
from tuner.spec.model import Spec, StrategyName
from tuner.spec.units import count_text, digits

#: Measured with small Python models, in seconds: a deployment, and perf_analyzer's start and end.
DEPLOY_S, OVERHEAD_S = 1.2, 0.6
#: Usual number of rounds in a proof, and of loads per config in a round; and the expected share of
#: runs whose current config is far behind, where one finalist gets one round.
ROUNDS, LOADS_A_ROUND, FAR_BEHIND = 3, 2, 0.3
#: Where one of these loads takes at least this long, in seconds, rounds are looks at saturated
#: configs: for about this many answers, and at least this many seconds.
SLOW_ROUND_S, LOOK_ANSWERS, LEAST_LOOK_S = 20.0, 120, 5.0
#: Usual share of the fields that a winner changes: each change is undone once as a test.
CHANGED = 0.5
#: Longest look of the search, in seconds. A look is worth its time where the race, which a bad
#: config loses early, takes at least this many times as long.
MOST_LOOK_S, RACES = 5.0, 4.0
#: Least time for the rounds of a proof, in seconds.
LEAST_S = 120.0
#: Usual number of measurements to find a capacity: the mean of 60 searches over five tables.
CLIMB = 4
#: Usual number of trials until `gp` expects too small a gain: the median of these searches.
ENOUGH_TRIALS = 9
#: Longer measurements, in seconds, are announced, and a candidate has the time of this many.
LONG_S, FEW_PROBES = 10.0, 3
#: An estimate this many times as long as the one before the first measurement is announced.
LONGER = 1.5
#: The kinds of deployment that load the model.
_LOADED = ("reload", "restart")
#: A note reports loading times of the model from this many seconds on.
SLOW_LOAD_S = 10.0


@dataclass(frozen=True)
class Seen:
    """What is known about the model.

    Attributes:
        rate_per_s: Requests per second that it answers within the SLOs; None where not known, then
            assumed high enough for the shortest windows.
        loads_s: Seconds that each loading of the model on a server took.
    """

    rate_per_s: float | None = None
    loads_s: tuple[float, ...] = ()

    @property
    def load_s(self) -> float:
        """Seconds of one loading of the model, the median; `DEPLOY_S` before the first."""
        return median(self.loads_s) if self.loads_s else DEPLOY_S

    @property
    def loads_text(self) -> str:
        """`the last run's took 2.1 s each (median of 9, longest 2.4 s)`."""
        if not self.loads_s:
            return "no earlier run shows how long one takes"
        many, longest = len(self.loads_s), minutes(max(self.loads_s))
        spread = f" each (median of {many}, longest {longest})" if many > 1 else ""
        return f"the last run's took {minutes(self.load_s)}{spread}"


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of the search and of the proof.

    Attributes:
        last_s: Seconds of the whole last run, where the estimate repeats that run; else None.
        after_rounds_s: The part of the proof after its rounds.
        soak_s: The part of ``after_rounds_s`` that the first soak takes.
        loads: About how many times the models are loaded on a server.
    """

    search_s: float
    proof_s: float
    last_s: float | None = None
    after_rounds_s: float = 0.0
    soak_s: float = 0.0
    loads: int = 0

    @property
    def total_s(self) -> float:
        return self.search_s + self.proof_s

    @property
    def text(self) -> str:
        """`the last run took 6:05 (search 2:00, proof 3:10)`, or `about 6:05 (…)`."""
        known = self.last_s
        total = f"the last run took {_clock(known)}" if known else f"about {_clock(self.total_s)}"
        return f"{total} (search {_clock(self.search_s)}, proof {_clock(self.proof_s)})"

    @property
    def sentence(self) -> str:
        return self.text if self.last_s is not None else f"the run takes {self.text}"


def foresee_run(results: Path, job: Job, seen: Seen = Seen()) -> Estimate:
    """The times of the last run with the same model and budget; without one, an estimate."""
    limits, plain = ("budget", "confirm"), job.spec.plain()

    def took(store: RunStore) -> Estimate | None:
        manifest, result = store.manifest(), store.result()
        if result is None or result.status in (Status.INTERRUPTED, Status.FAILED):
            return None
        if manifest.name != job.spec.name or any(manifest.spec[n] != plain[n] for n in limits):
            return None
        trials, rounds = store.trials(), store.confirmation()
        wall_s, phases, search_s = result.time.wall_s, result.time.by_phase(), spent_s(trials)
        proof_s = wall_s - phases["starting_s"] - phases["writing_s"] - search_s
        fresh = sum(row.order == 0 for row in rounds)  # the first load of each fresh server
        loads = 1 + sum(t.deployment in _LOADED for t in trials) + fresh
        return Estimate(search_s, max(proof_s, 0.0), wall_s, loads=loads)

    return find_newest(results, job.spec.name, took) or estimate_run(job, seen)


def estimate_run(job: Job, seen: Seen = Seen()) -> Estimate:
    """The estimate by the budget, the windows and the usual measurements of a proof."""
    spec, load_s, point_s = job.spec, seen.load_s, _measurement_s(job, seen)
    trials = min(_trials(spec), job.space.size().count)
    search_s = trials * load_s + _search_s(job, trials, seen)
    if spec.budget.time is not None:
        search_s = min(search_s, float(spec.budget.time))
    rounds, sides = min(ROUNDS, spec.confirm.rounds), 1 + min(spec.confirm.finalists, trials)
    loads = 1 if job.plan.listed is not None else LOADS_A_ROUND
    fields = len(spec.server.space) + sum(len(m.space) for m in spec.models.values())
    soak_s, soaks = soak_time_s(spec, _load(job, seen)), 1
    round_s = loads * point_s
    if seen.rate_per_s is not None and point_s >= SLOW_ROUND_S and job.plan.searches_rates:
        round_s, soaks = max(LOOK_ANSWERS / seen.rate_per_s, LEAST_LOOK_S), 2
    made = (1.0 - FAR_BEHIND) * rounds * sides + FAR_BEHIND
    rounds_s = min(made * (load_s + round_s), rounds_at_most_s(spec, search_s))
    undone = CHANGED * fields
    after_s = undone * (load_s + point_s) + soaks * soak_s
    return Estimate(
        search_s,
        rounds_s + after_s,
        after_rounds_s=after_s,
        soak_s=soak_s,
        loads=1 + trials + math.ceil(made + undone) + soaks * (soak_s > 0.0),
    )


def _trials(spec: Spec) -> int:
    """The trials of the budget, or the usual number where the search may end by itself."""
    ends = spec.search.strategy is StrategyName.GP and float(spec.confirm.min_gain) > 0.0
    return min(spec.budget.trials, ENOUGH_TRIALS) if ends else spec.budget.trials


def rounds_at_most_s(spec: Spec, searched_s: float) -> float:
    """The time, in seconds, after which a proof begins no further round."""
    given = spec.confirm.time
    return max(searched_s, LEAST_S) if given is None else float(given)


def spent_s(trials: Sequence[Trial]) -> float:
    """Seconds spent on trials; time in which several benches measured counts once.

    On several benches, a trial took its total time from its start.
    """
    alone = sum(t.time.total_s for t in trials if t.bench is None)
    beside = [datetime.fromisoformat(t.started_at).timestamp() for t in trials if t.bench]
    ends = [t.time.total_s for t in trials if t.bench]
    until, spent = -math.inf, 0.0
    for start, took_s in sorted(zip(beside, ends, strict=True)):
        spent += max(start + took_s - max(start, until), 0.0)
        until = max(until, start + took_s)
    return alone + spent


def refuse_too_short(job: Job, seen: Seen | None) -> None:
    """Refuses a budget that is too small to compare two configs, before a new run starts.

    Raises:
        SpecError: The budget has one trial, or less time than two measurements take.
    """
    if job.spec.budget.trials < 2:
        raise SpecError(
            f"the budget is {count_text(job.spec.budget.trials, 'trial')}, and the current config "
            "needs one",
            "set budget.trials or --trials to 2 or more",
        )
    known, time_s = seen or Seen(), job.spec.budget.time
    load_s, point_s = 2 * known.load_s, _measurement_s(job, known)
    if time_s is not None and time_s < load_s + 2 * point_s:
        enough_s = math.ceil(load_s + _search_s(job, 2, known))
        raise SpecError(
            f"the budget's time is {time_s}, and two configs take at least "
            f"{load_s + 2 * point_s:.0f} s",
            f"set budget.time or --time-budget to {enough_s}s or more, which finds the capacity "
            "of two, or shorten workload.window",
        )


def _search_s(job: Job, trials: int, seen: Seen) -> float:
    """Measurements of the search: a loser costs a race or a look, an incumbent takes the most."""
    point_s = _measurement_s(job, seen)
    if job.plan.listed is not None:
        return trials * (1 + len(job.plan.listed)) / 2 * point_s
    incumbents = min(trials, 1.0 + math.log(trials))  # the records of a random order, about
    most = CLIMB
    if seen.rate_per_s is not None and length_s(job.spec, job.plan, seen.rate_per_s) > LONG_S:
        most = FEW_PROBES
    looks = job.plan.searches_rates and len(job.spec.streams) == 1
    loser_s = MOST_LOOK_S if looks and point_s >= RACES * MOST_LOOK_S else point_s
    return (trials - incumbents) * loser_s + incumbents * most * point_s


def _measurement_s(job: Job, seen: Seen) -> float:
    """One measurement; at low rates it is longer, as long as the percentile needs."""
    load = _load(job, seen)
    window = window_of(job.spec, load, brief=True)
    starts = job.spec.workload.starts
    each_s = part_s(window.duration_s, starts)
    return starts * (window.warmup_s + each_s + window.tail_s + OVERHEAD_S)


def _load(job: Job, seen: Seen) -> LoadPoint:
    searched = job.plan.levels.highest if seen.rate_per_s is None else seen.rate_per_s
    return LoadPoint(job.plan.arrivals, searched if job.plan.listed is None else job.plan.listed[0])


def soak_time_s(spec: Spec, load: LoadPoint) -> float:
    """Seconds of one soak, 0 if the spec turns soaks off; soaks at lower loads are not included."""
    return soak_of(spec, load).total_s + OVERHEAD_S if float(spec.confirm.soak) else 0.0


def seen_before(results: Path, job: Job) -> Seen | None:
    """What the newest run of this model with trials shows; None without one."""

    def seen(store: RunStore) -> Seen | None:
        trials = store.trials() if store.manifest().name == job.spec.name else []
        return seen_in(trials, job) if trials else None

    return find_newest(results, job.spec.name, seen)


def seen_in(trials: Sequence[Trial], job: Job) -> Seen:
    """What the trials of a search show about the model."""
    loads_s = tuple(t.time.deploying_s for t in trials if t.deployment in _LOADED)
    rate = next((level for t in trials if (level := t.sustained_level)), None)
    return Seen(rate if job.plan.arrivals.open_loop else None, loads_s)


def length_s(spec: Spec, plan: LoadPlan, level: float) -> float:
    """The expected length of one measurement, in seconds, with its warm-up."""
    return window_of(spec, LoadPoint(plan.arrivals, level), brief=True).total_s


def minutes(seconds: float) -> str:
    """`45 s`, `7.5 minutes`."""
    if seconds < 100.0:
        return f"{digits(seconds, 2)} s"
    return f"{digits(seconds / 60.0, 2)} minutes"


def _clock(seconds: float) -> str:
    return "{}:{:02d}".format(*divmod(round(seconds), 60))
