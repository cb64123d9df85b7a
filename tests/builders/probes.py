"""What one load level showed, said in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Probe:
    """A `tuner.score.capacity.Probe`."""

    level: float
    passed: bool
    served_per_s: float | None = None
    slo_utilisation: float | None = None
    undecided: bool = False
