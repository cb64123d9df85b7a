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

#: Fewest failures that may end a search.
FEWEST_FAILED = 4
#: If the median latency is above this many times the bound at the lowest loads, no config helps.
HOPELESS = 10.0
#: Fewest configs that must show this, the current one among them.
CONFIGS = 2
#: One config is enough if a lone request takes more than this many times the bound (noise of a
#: median is less), and all fields of the space are scheduling only. With at most this many requests
#: in flight on average, most are alone.
SURELY, MOSTLY_ALONE = 1.2, 0.6


class StopReason(Enum):
    """Why a search ended, as a sentence; ``{number}`` is the number of the trial in progress."""

    TRIALS = "Every trial of the budget was run."
    TIME = "Time budget reached."
    ABANDONED = "Time budget reached; trial {number} abandoned."
    TOO_MANY_FAILED = "More trials failed than the budget allows."
    EXHAUSTED = "The strategy had no further candidate."
    OUT_OF_REACH = "An SLO is out of reach: a single request takes longer than its bound."
    ENOUGH = "The expected gain of another trial was too small."


@dataclass(frozen=True)
class Progress:
    """How far a search has come.

    Attributes:
        trials: The number of finished trials, the current config included.
        failed: The number of those that failed.
        elapsed_s: Seconds spent on the search, with earlier parts of a resumed run.
        begun: The current config was measured, so others can be compared with it.
        out_of_reach: No config is expected to meet the SLOs.
    """

    trials: int
    failed: int
    elapsed_s: float
    begun: bool = True
    out_of_reach: bool = False


@dataclass(frozen=True)
class SearchLimits:
    """Limits of a search; None: no limit. ``max_failed``: share of the trials, 0 to 1."""

    trials: int
    time_s: float | None = None
    max_failed: float = 0.5

    @classmethod
    def of(cls, spec: Spec) -> SearchLimits:
        time_s = None if spec.budget.time is None else float(spec.budget.time)
        return cls(spec.budget.trials, time_s, float(spec.budget.max_failed))

    def __call__(self, progress: Progress) -> StopReason | None:
        """Why the search should stop; None if it should continue.

        Too many failures come first, since these make the run fail.
        """
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
    """Why no config of the space meets an SLO, by the latency of a lone request; None if one may.

    Scheduling fields, the only ones of the space, make no lone request faster.
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
    """The least median latency, in microseconds, where most requests were alone; else infinite."""
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
    """Whether all measured configs miss the latency bound by far (`HOPELESS`) at all loads.

    Only where the load is searched. Other configs are not expected to be much faster.
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
