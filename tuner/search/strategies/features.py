"""Distances between candidates: near ones are expected to behave alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.space.candidate import CACHE, Candidate, FieldValue
from tuner.space.parameters import Parameter, RangeParameter, sizes_in
from tuner.space.space import Space
from tuner.spec.paths import is_scheduling

#: Least distance of a parameter that is set from one that is not, or is 0.
_SET = 0.5


@dataclass(frozen=True)
class Features:
    """The distances between candidates in each parameter.

    Numbers (counts, threads, sizes, delays, numbers written as text) are on a logarithmic scale
    from 0 to 1, lists of sizes by their smallest and largest size. A value that is not set, or has
    no effect beside the others, is outside the scale. Other values are either equal or different.
    """

    space: Space

    @property
    def unknown(self) -> tuple[bool, ...]:
        """True for each parameter that may change the service time of a batch."""
        return tuple(p.knob != CACHE and not is_scheduling(p.path) for p in self.space.parameters)

    def squares(
        self, one: Sequence[Candidate], other: Sequence[Candidate]
    ) -> npt.NDArray[np.float64]:
        """Squared distances, shape (parameters, candidates of ``one``, candidates of ``other``)."""
        first, second = ([self.space.values(c) for c in given] for given in (one, other))
        distances = [
            _apart([v.get(p.knob) for v in first], [v.get(p.knob) for v in second], p)
            for p in self.space.parameters
        ]
        return np.stack(distances)


def _apart(
    one: Sequence[FieldValue], other: Sequence[FieldValue], parameter: Parameter
) -> npt.NDArray[np.float64]:
    scale = _Scale.of(parameter)
    first, second = (
        np.array([scale.place(v) for v in given]).reshape(len(given), -1) for given in (one, other)
    )
    apart: npt.NDArray[np.float64] = ((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=2)
    return apart


@dataclass(frozen=True)
class _Scale:
    """The range of one parameter's values.

    Attributes:
        low, high: Logarithms to base 2 of the smallest and the largest number.
        names: The values of a parameter without numbers, each with a separate dimension.
    """

    low: float
    high: float
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, parameter: Parameter) -> _Scale:
        if isinstance(parameter, RangeParameter):
            low, high = (math.log2(max(v, 1)) for v in (parameter.low, parameter.high))
            return cls(low, high)
        by_value = [_numbers(v) for v in parameter.values]
        if any(n is None for n in by_value):
            return cls(0.0, 0.0, tuple(dict.fromkeys(map(_name, parameter.values))))
        sizes = [n for numbers in by_value for n in numbers or ()]
        return cls(min(sizes, default=0.0), max(sizes, default=0.0))

    def place(self, value: FieldValue) -> tuple[float, ...]:
        if self.names:
            return tuple(math.sqrt(0.5) * (_name(value) == name) for name in self.names)
        sizes = _numbers(value)
        if not sizes:
            return 0.0, 0.0, 0.0
        width = (self.high - self.low) or 1.0
        ends = (((size - self.low) / width) for size in (min(sizes), max(sizes)))
        return (_SET, *(math.sqrt(0.5) * end for end in ends))


def _name(value: FieldValue) -> str:
    return f"{type(value).__name__} {value}"


def _numbers(value: FieldValue) -> tuple[float, ...] | None:
    """Logarithms to base 2; empty for a value that is not set or 0, None for no number."""
    if value is None or isinstance(value, bool):
        return (0.0,) if value else ()
    if isinstance(value, tuple):
        sizes = sizes_in(value)
        return tuple(n for size in sizes for n in _numbers(size) or ()) if sizes else None
    try:
        number = float(value)
    except ValueError:
        return None
    if not math.isfinite(number) or number < 0:
        return None
    return (math.log2(number),) if number > 0 else ()
