"""Candidates as points in a space where near ones behave alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.space import cache
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import Parameter, RangeParameter
from tuner.space.space import Space
from tuner.twin.model import unmodelled_paths

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Features:
    """Coordinates of candidates.

    Attributes:
        scheduling: Numbers of those parameters that the twin simulates.
        other: Of all others.
    """

    space: Space
    scheduling: tuple[Parameter, ...]
    other: tuple[Parameter, ...]

    @classmethod
    def of(cls, space: Space) -> Features:
        fields = dict.fromkeys((p.path for p in space.parameters), 1)
        unknown = set(unmodelled_paths(Candidate(fields))) - {cache.SIZE}
        return cls(
            space,
            tuple(p for p in space.parameters if p.path not in unknown),
            tuple(p for p in space.parameters if p.path in unknown),
        )

    def of_scheduling(self, candidate: Candidate) -> Vector:
        """Two coordinates a parameter: whether it is set, and its size on a scale of 0 to 1."""
        values = self.space.values(candidate)
        pairs = [_pair(p, values.get(p.path)) for p in self.scheduling]
        return np.array(pairs, float).reshape(-1)

    def of_others(self, candidate: Candidate) -> tuple[FieldValue, ...]:
        values = self.space.values(candidate)
        return tuple(values.get(p.path) for p in self.other)


def _pair(parameter: Parameter, value: FieldValue) -> tuple[float, float]:
    number = _number(value)
    if number is None:
        return 0.0, 0.0
    sizes = _sizes(parameter)
    low, high = min(sizes, default=0.0), max(sizes, default=1.0)
    return 0.5, (number - low) / (high - low) if high > low else 0.0


def _sizes(parameter: Parameter) -> list[float]:
    values = (
        (parameter.low, parameter.high)
        if isinstance(parameter, RangeParameter)
        else parameter.values
    )
    return [n for n in map(_number, values) if n is not None]


def _number(value: FieldValue) -> float | None:
    """On a scale of ratios; None for what is not set (0 is: no delay is one of its own)."""
    if isinstance(value, bool):
        return 1.0 if value else None
    if isinstance(value, tuple):
        value = max((v for v in value if isinstance(v, int)), default=0)
    if isinstance(value, (int, float)) and value > 0:
        return math.log2(value)
    return None
