"""Measurements that do not count, kept so that no measured second is lost silently."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import Field

from tuner.facts import Facts
from tuner.measurement.measurement import Measurement


class Stage(Enum):
    """What a run was measuring for."""

    SEARCH = "search"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True)
class Rejected(Facts):
    """One rejected measurement.

    Attributes:
        level: Of the load, see `tuner.measurement.measurement.LoadPoint`.
        wall_s: What it took.
        measurement: Its result; None when it did not get that far.
    """

    reason: str
    candidate_key: str
    level: float
    wall_s: float
    stage: Annotated[Stage, Field(alias="phase")]
    measurement: Measurement | None = None
