"""Measurements that count for nothing, kept so that no measured second is lost in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tuner.load.measurement import Measurement


class Stage(Enum):
    """What a run was measuring for."""

    SEARCH = "search"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True)
class Rejected:
    """One rejected measurement.

    Attributes:
        level: Of the load, see `tuner.load.measurement.LoadPoint`.
        wall_s: What it took.
        measurement: What it gave; None when it did not come to that.
    """

    reason: str
    candidate_key: str
    level: float
    wall_s: float
    stage: Stage
    measurement: Measurement | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "candidate_key": self.candidate_key,
            "level": self.level,
            "wall_s": self.wall_s,
            "phase": self.stage.value,
            "measurement": None if self.measurement is None else self.measurement.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Rejected:
        measurement = data["measurement"]
        return cls(
            reason=data["reason"],
            candidate_key=data["candidate_key"],
            level=data["level"],
            wall_s=data["wall_s"],
            stage=Stage(data["phase"]),
            measurement=None if measurement is None else Measurement.from_json(measurement),
        )


def summary(rejected: Sequence[Rejected], measuring_s: float) -> dict[str, Any]:
    """How many, how long in all, and as a share of all measuring; each reason once."""
    seconds = sum(r.wall_s for r in rejected)
    return {
        "count": len(rejected),
        "seconds": round(seconds, 3),
        "share_of_measuring": min(seconds / measuring_s, 1.0) if measuring_s > 0.0 else 0.0,
        "reasons": list(dict.fromkeys(r.reason for r in rejected)),
    }
