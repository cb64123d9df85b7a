"""One trial: a candidate, what it measured, how it scored, and where its time went.

An `Aim` says how good a trial is for the objective, as the logarithm of its score: a difference is
a gain as a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from pydantic import Field

from tuner.facts import Facts
from tuner.measurement.batch_profile import BatchCall
from tuner.reason import Reason
from tuner.score.capacity import capacity_level
from tuner.score.judge import SloOutcome
from tuner.score.next_load import LoadPlan
from tuner.score.point import Point, Score
from tuner.score.saturation import Saturated
from tuner.server.memory import Memories
from tuner.space.candidate import Candidate
from tuner.spec.slo import Goal, Objective, Slo


class TrialState(Enum):
    MEASURED = "measured"  # scored in full
    PRUNED = "pruned"  # lost to the incumbent at its load; `score` holds a bound
    FAILED = "failed"  # refused, crashed, hung or unmeasurable; `reason` says why


@dataclass(frozen=True)
class TrialTime:
    """Seconds of one trial by phase; they add up to its wall time."""

    searching_s: float = 0.0
    deploying_s: float = 0.0
    measuring_s: float = 0.0
    other_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.searching_s + self.deploying_s + self.measuring_s + self.other_s


@dataclass(frozen=True)
class Predicted:
    """The score a strategy's model expected, with its 90 % interval, in the objective's unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TrialBench:
    """Which of several benches measured a trial.

    Attributes:
        gpus: ``all``, ``none``, or numbers such as ``0,1``.
        cpus: Its own, such as ``0-7``; empty: not known.
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
    attempts: int = 1  # 0 where it was not tried: there is no memory for it
    time: TrialTime = TrialTime()
    started_at: str = ""  # ISO 8601, UTC
    predicted: Predicted | None = None  # before it was measured
    limit: Reason | None = None  # what ended its measuring where that was not the config itself
    refused: bool = False  # by the server, or for want of memory: so would one that asks for more
    #: None where the run has but one.
    bench: Annotated[TrialBench | None, Field(exclude_if=lambda bench: bench is None)] = None
    #: What it answered with many requests in flight, where it was asked.
    saturated: Annotated[Saturated | None, Field(exclude_if=lambda seen: seen is None)] = None
    #: How long batches took, before any load.
    batch_calls: Annotated[tuple[BatchCall, ...], Field(exclude_if=lambda calls: not calls)] = ()
    #: What its models took, at its end.
    memory: Annotated[Memories, Field(exclude_if=lambda memory: not memory)] = field(
        default_factory=dict
    )

    @property
    def sustained_level(self) -> float | None:
        """The load that the score is for; None where the trial met the SLOs at none."""
        if self.score is None or self.score.best_point is None:
            return None
        return self.points[self.score.best_point].level

    @property
    def capacity_level(self) -> float | None:
        """The capacity by its measurements; None if the trial met the SLOs at no load."""
        level = self.sustained_level
        above = [p for p in self.points if level is not None and p.level >= level]
        if any(p.passed and p.level != level for p in above):
            return level  # more clients that got less
        return capacity_level(above) if above else None

    @property
    def outcome(self) -> SloOutcome:
        """Whether it met the SLOs at some load; if not, what its lowest load says.

        One that passed and is infeasible all the same missed an SLO with fewer requests.
        """
        if self.score is not None and self.score.feasible:
            return SloOutcome.MET
        lowest = self.lowest_point
        passed = any(p.passed for p in self.points)
        return SloOutcome.MISSED if lowest is None or passed else lowest.outcome

    @property
    def lowest_point(self) -> Point | None:
        """What it showed at its lowest load."""
        return min(self.points, key=lambda p: p.level, default=None)

    def order(self, goal: Goal) -> tuple[bool, float, float]:
        """Sorts the best first: feasible ones by score, then the others by violation."""
        score = self.score
        assert score is not None
        value = -score.value if goal is Goal.MAXIMIZE_GOODPUT else score.value
        return not score.feasible, 0.0 if score.feasible else score.violation, value


#: A candidate that meets the SLOs at no load is worth less than any that meets them at some load.
NOTHING = -30.0
#: Latency grows faster than the load: a utilisation of 2 is about 20 % too much load.
STEEPNESS = 3.5


@dataclass(frozen=True)
class Aim:
    """What a search is after."""

    objective: Objective
    slos: Sequence[Slo]
    plan: LoadPlan

    def measured(self, trial: Trial) -> float | None:
        """None for a trial that met the SLOs at no load, or lost before that load was known."""
        score = trial.score
        if trial.state is not TrialState.MEASURED or score is None or not score.feasible:
            return None
        return self.worth(score.value)

    def bound(self, trial: Trial) -> float | None:
        """The most that a trial without a `measured` worth can be worth; None: nothing known."""
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
        """The objective's own unit again."""
        return math.exp(worth if self._goodput else -worth)

    @property
    def _goodput(self) -> bool:
        return self.objective.goal is Goal.MAXIMIZE_GOODPUT
