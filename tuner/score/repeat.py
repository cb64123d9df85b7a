"""One measurement of a confirmation, or of a check's rounds, as `confirmation.jsonl` keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tuner.facts import Facts
from tuner.score.point import Point


class Role(Enum):
    CURRENT = "current"
    CANDIDATE = "candidate"
    SIMPLER = "simpler"  # the winner with one change undone
    SOAK = "soak"  # what is to be written, or stays, under one long load


@dataclass(frozen=True)
class Repeat(Facts):
    """A config measured again."""

    unknown = "ignore"

    round: int
    order: int
    role: Role
    candidate_key: str
    point: Point

    @property
    def of_soak(self) -> bool:
        return self.role is Role.SOAK
