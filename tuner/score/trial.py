"""One trial: a candidate, what it measured, how it scored, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from pydantic import Field

from tuner.facts import Facts
from tuner.score.capacity import capacity_level
from tuner.score.point import Point, Score
from tuner.server.memory import Memories
from tuner.space.candidate import Candidate
from tuner.spec.objective import Goal


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


@dataclass(frozen=True)
class Predicted:
    """The score a strategy's model expected, with its 90 % interval, in the objective's unit."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Worker:
    """Who measured a trial for a run, where that was not the run itself (`tune worker`).

    Attributes:
        gpus: Those its server may see: ``all``, ``none``, or numbers such as ``0,1``.
    """

    host: str
    gpus: str


def _empty(memory: Memories) -> bool:
    return not memory


@dataclass(frozen=True)
class Trial(Facts):
    number: int
    candidate: Candidate
    state: TrialState
    points: tuple[Point, ...] = ()
    score: Score | None = None
    reason: str | None = None
    deployment: str | None = None  # unchanged | in place | reload | restart
    attempts: int = 1  # 0 where it was not tried: there is no memory for it
    time: TrialTime = TrialTime()
    started_at: str = ""  # ISO 8601, UTC
    predicted: Predicted | None = None  # before it was measured
    worker: Worker | None = None  # None where the run measured it itself
    limit: str | None = None  # what ended its measuring where that was not the config itself
    refused: bool = False  # by the server, or for want of memory: so would one that asks for more
    #: What its models took, at its end.
    memory: Annotated[Memories, Field(exclude_if=_empty)] = field(default_factory=dict)

    @property
    def sustained_level(self) -> float | None:
        """The load that the score is for; None where the trial met the SLOs at none.

        It is the highest load at which every SLO was met; in a closed loop, the one of those with
        the highest throughput.
        """
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

    def order(self, goal: Goal) -> tuple[bool, float, float]:
        """Sorts the best first: feasible ones by score, then the others by violation."""
        score = self.score
        assert score is not None
        value = -score.value if goal is Goal.MAXIMIZE_GOODPUT else score.value
        return not score.feasible, 0.0 if score.feasible else score.violation, value
