"""When to stop searching."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tuner.reason import Fact, Reason, ReasonKind
from tuner.score.judge import tightest_latency
from tuner.score.next_load import LoadPlan
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec
from tuner.spec.slo import Slo

#: Failures before their share says anything.
FEWEST_FAILED = 4
#: Where a mostly lone request takes this many times its bound, no config can help.
HOPELESS = 10.0
#: Configs that must show it, the current one among them.
CONFIGS = 2
#: One config is enough where it takes this many times the bound, and no field of the space changes
#: what a request takes: a median is within that. At least most requests are alone up to so many in
#: flight.
SURELY, MOSTLY_ALONE = 1.2, 0.6


class StopReason(Enum):
    """Why a search ended, as a sentence; ``{number}`` is that of the trial under way."""

    TRIALS = "Every trial of the budget was run."
    TIME = "Time budget reached."
    ABANDONED = "Time budget reached; trial {number} abandoned."
    TOO_MANY_FAILED = "More trials failed than the budget allows."
    EXHAUSTED = "There was nothing left that the strategy would try."
    OUT_OF_REACH = "An SLO is out of reach: a request by itself takes longer than it allows."
    ENOUGH = "Another trial could not be expected to gain enough to be worth it."


@dataclass(frozen=True)
class Progress:
    """How far a search has come.

    Attributes:
        trials: Finished ones, the current config included.
        failed: Of those.
        begun: The current config was measured; before that a search has nothing to compare with.
        elapsed_s: Spent on the search, earlier parts of a resumed run included.
        out_of_reach: No config can be expected to meet the SLOs.
    """

    trials: int
    failed: int
    elapsed_s: float
    begun: bool = True
    out_of_reach: bool = False


@dataclass(frozen=True)
class SearchLimits:
    """Limits of a search; None is no limit. ``max_failed`` is a share of the trials, 0..1."""

    trials: int
    time_s: float | None = None
    max_failed: float = 0.5

    @classmethod
    def of(cls, spec: Spec) -> SearchLimits:
        time_s = None if spec.budget.time is None else float(spec.budget.time)
        return cls(spec.budget.trials, time_s, float(spec.budget.max_failed))

    def __call__(self, progress: Progress) -> StopReason | None:
        """Why to stop now; None to go on. Failure comes first, it makes the run fail."""
        failed, done = progress.failed, progress.trials
        if failed >= FEWEST_FAILED and failed > self.max_failed * done:
            return StopReason.TOO_MANY_FAILED
        if progress.out_of_reach:
            return StopReason.OUT_OF_REACH
        if not progress.begun:
            return None
        if done >= self.trials:
            return StopReason.TRIALS
        if self.time_s is not None and progress.elapsed_s >= self.time_s:
            return StopReason.TIME
        return None


def lone_miss(history: Sequence[Trial], slos: Sequence[Slo], space: Space) -> Reason | None:
    """Why no config of the space meets an SLO, by what a lone request takes; None where one may.

    Scheduling adds to that and takes nothing off it.
    """
    bound = tightest_latency(slos)
    if bound is None or not space.only_schedules:
        return None
    for trial in history:
        alone_us = _alone_us(trial, bound) - space.queue_delay_us(trial.candidate)
        if SURELY * bound.bound < alone_us < math.inf:
            facts: dict[str, Fact] = {"took_ms": float(alone_us) / 1e3, "slo": str(bound)}
            return Reason(ReasonKind.LONE_REQUEST_ALWAYS_MISSES, facts=facts)
    return None


def _alone_us(trial: Trial, slo: Slo) -> float:
    """The median latency where most requests were alone; infinite where they never were."""
    times_us = [math.inf]
    for point in trial.points:
        total, stream = point.measurement, point.measurement.of(slo.stream)
        open_loop = total.load.arrivals.open_loop
        in_flight = total.requests_per_s * total.avg_latency_us / 1e6 if open_loop else point.level
        if stream is not None and in_flight <= (MOSTLY_ALONE if open_loop else 1.0):
            times_us.append(stream.p50_latency_us)
    return min(times_us)


def out_of_reach(
    history: Sequence[Trial], slos: Sequence[Slo], plan: LoadPlan, current: Candidate
) -> bool:
    """Every config measured is far off at its lowest load, where the load is searched.

    Scheduling adds to the time a model takes and takes nothing off it, so others are no faster.
    """
    bound = tightest_latency(slos)
    if bound is None or plan.listed is not None or not plan.arrivals.open_loop:
        return False
    measured = [t for t in history if t.points]
    if not any(t.candidate == current for t in measured):
        return False
    return len(measured) >= CONFIGS and all(
        min(p.measurement.p50_latency_us for p in t.points) > HOPELESS * bound.bound
        for t in measured
    )
