"""One trial: a candidate with its measurements, its score and the time it took.

An `Aim` gives the worth of a trial for the objective, the logarithm of its score: a difference of
two worths is a relative gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from pydantic import Field

from tuner.facts import Facts, is_empty, is_none
from tuner.measurement.batch_profile import BatchCall
from tuner.reason import Reason
from tuner.score.capacity import Bracket, capacity_level, saturated
from tuner.score.judge import SloOutcome
from tuner.score.point import Point, Score
from tuner.score.saturation import Saturated
from tuner.server.memory import Memories
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal, Objective


class TrialState(Enum):
    MEASURED = "measured"  # scored in full
    PRUNED = "pruned"  # lost to the incumbent at its load; `score` holds a bound
    FAILED = "failed"  # refused, crashed, hung or unmeasurable; `reason` says why


@dataclass(frozen=True)
class TrialTime:
    """Seconds of one trial by phase; their sum is its wall time."""

    searching_s: float = 0.0
    deploying_s: float = 0.0
    measuring_s: float = 0.0
    other_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.searching_s + self.deploying_s + self.measuring_s + self.other_s


@dataclass(frozen=True)
class Predicted:
    """The score that a strategy's model expected, with a 90% interval, in the objective's unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TrialBench:
    """Which of several benches measured a trial.

    Attributes:
        host: The machine's name.
        gpus: ``all``, ``none``, or numbers such as ``0,1``.
        cpus: The bench's CPUs, such as ``0-7``; empty: not known.
    """

    host: str
    gpus: str
    cpus: str = ""


@dataclass(frozen=True)
class Trial(Facts):
    number: int
    candidate: Candidate
    state: TrialState
    points: tuple[Point, ...] = ()
    score: Score | None = None
    reason: Reason | None = None
    deployment: str | None = None  # unchanged | in place | reload | restart
    attempts: int = 1  # 0 where it was not deployed, as it does not fit in memory
    time: TrialTime = TrialTime()
    started_at: str = ""  # ISO 8601, UTC
    predicted: Predicted | None = None  # before the measurements
    limit: Reason | None = None  # why measuring ended, if not because of the config
    refused: bool = False  # by the server, or for lack of memory: so is a config that needs more
    #: None where the run has one bench.
    bench: Annotated[TrialBench | None, Field(exclude_if=is_none)] = None
    #: The screening, where the candidate was screened.
    saturated: Annotated[Saturated | None, Field(exclude_if=is_none)] = None
    #: How long batches took before the first load.
    batch_calls: Annotated[tuple[BatchCall, ...], Field(exclude_if=is_empty)] = ()
    #: The memory of the models at the end of the trial.
    memory: Annotated[Memories, Field(exclude_if=is_empty)] = field(default_factory=dict)

    @property
    def sustained_level(self) -> float | None:
        """The level that the score is for; None where the trial met the SLOs at no load."""
        if self.score is None or self.score.best_point is None:
            return None
        return self.points[self.score.best_point].level

    @property
    def capacity_level(self) -> float | None:
        """The capacity by the measurements, as a level; None if no load met the SLOs."""
        level = self.sustained_level
        above = [p for p in self.points if level is not None and p.level >= level]
        if any(p.passed and p.level != level for p in above):
            return level  # more clients had a lower throughput
        return capacity_level(above) if above else None

    @property
    def at_most_per_s(self) -> float:
        """Upper bound on the sustained load, in requests per second; infinite where unknown.

        The bound is the lowest load at which the config missed an SLO, or the throughput with a
        fixed number of requests in flight (utilisation law; Denning and Buzen, 1978). The
        throughput under an overload of an open loop is no bound: where receiving requests uses the
        CPUs of the model, it is far below the highest throughput.
        """
        open_loop = [p for p in self.points if p.served_per_s is not None]
        missed = Bracket.of(open_loop).ceiling
        bounds = [] if missed is None else [missed.level]
        if self.saturated is not None and self.saturated.at_most_per_s is not None:
            bounds.append(self.saturated.at_most_per_s)
        return min(bounds, default=math.inf)

    def answered_less_than(self, level: float) -> bool:
        """Whether a look or an overload shows that the config hardly sustains ``level``."""
        overloaded = [p for p in self.points if saturated(p) and p.level >= level]
        served = max((p.served_per_s or 0.0 for p in overloaded), default=math.inf)
        return min(served, self.at_most_per_s) < level

    @property
    def outcome(self) -> SloOutcome:
        """Whether the trial met the SLOs at some load; if not, the outcome of its lowest load.

        A trial that passed at some load and is infeasible missed an SLO at low loads.
        """
        if self.score is not None and self.score.feasible:
            return SloOutcome.MET
        lowest = self.lowest_point
        passed = any(p.passed for p in self.points)
        return SloOutcome.MISSED if lowest is None or passed else lowest.outcome

    @property
    def lowest_point(self) -> Point | None:
        """The measurement at the lowest load; None without any."""
        return min(self.points, key=lambda p: p.level, default=None)

    def order(self, goal: Goal) -> tuple[bool, float, float]:
        """Sort key: the best trial first, feasible ones by score, then others by violation."""
        score = self.score
        assert score is not None
        value = -score.value if goal is Goal.MAXIMIZE_GOODPUT else score.value
        return not score.feasible, 0.0 if score.feasible else score.violation, value


def trial_of(candidate: Candidate, trials: Iterable[Trial]) -> Trial | None:
    """The trial of a candidate; None if it was not tried."""
    return next((trial for trial in trials if trial.candidate == candidate), None)


#: The worth of a candidate that meets the SLOs at no load: less than that of any other.
NOTHING = -30.0
#: Exponent of the load by which latency grows: a utilisation of 2 is about 20% too much load.
STEEPNESS = 3.5


@dataclass(frozen=True)
class Aim:
    """The aim of a search, by which trials are compared."""

    objective: Objective

    def measured(self, trial: Trial) -> float | None:
        """The worth of a trial; None where it met the SLOs at no load, or is pruned or failed."""
        score = trial.score
        if trial.state is not TrialState.MEASURED or score is None or not score.feasible:
            return None
        return self.worth(score.value)

    def bound(self, trial: Trial) -> float | None:
        """Upper bound on the worth of a trial without a `measured` one; None where unknown."""
        if self.measured(trial) is not None or not self._goodput:
            return None
        failed = [p.measurement for p in trial.points if p.outcome is SloOutcome.MISSED]
        least = [
            min(m.throughput_infer_per_s, m.load.level * m.batch_size)
            if m.load.arrivals.open_loop
            else m.throughput_infer_per_s
            for m in failed
        ]
        seen = trial.saturated
        if seen is not None and seen.at_most_per_s is not None:
            least.append(seen.at_most_per_s * seen.batch_size)
        return self.worth(min(least)) if least else None

    def worth(self, score: float) -> float:
        if not score > 0.0:
            return NOTHING
        return math.log(score) if self._goodput else -math.log(score)

    def score(self, worth: float) -> float:
        """The score, in the objective's unit, of a worth: the inverse of `worth`."""
        return math.exp(worth if self._goodput else -worth)

    @property
    def _goodput(self) -> bool:
        return self.objective.goal is Goal.MAXIMIZE_GOODPUT
