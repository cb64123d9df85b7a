"""Knobs (fields of models, settings of the server) and parameters (a knob and its values)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.errors import SpecError
from tuner.modelconfig.values import FieldValue
from tuner.spec.paths import SERVER, is_inside
from tuner.spec.units import bytes_text

__all__ = ["SERVER", "Knob"]


@dataclass(frozen=True, order=True)
class Knob:
    """A field of one model, or a setting of the server.

    Its text is for users and for Optuna's names, and never parsed.

    Attributes:
        owner: Name of the model, or `SERVER`.
        path: ModelConfig path (``instance_group.count``), or the name of a server's setting.
    """

    owner: str
    path: str

    def is_inside(self, message: Knob) -> bool:
        return self.owner == message.owner and is_inside(self.path, message.path)

    def __str__(self) -> str:
        return self.path if self.owner == SERVER else f"{self.owner}/{self.path}"


@dataclass(frozen=True)
class ChoiceParameter:
    """One of several listed values; a value may be a list of sizes.

    Attributes:
        values: Distinct, in the spec's order; ``None`` leaves the field out.
    """

    knob: Knob
    values: tuple[FieldValue, ...]

    @property
    def path(self) -> str:
        return self.knob.path

    @property
    def count(self) -> int:
        return len(self.values)

    def __contains__(self, value: FieldValue) -> bool:
        return any(same(value, v) for v in self.values)

    def __iter__(self) -> Iterator[FieldValue]:
        return iter(self.values)

    def draw(self, rng: random.Random) -> FieldValue:
        return rng.choice(self.values)


@dataclass(frozen=True)
class RangeParameter:
    """A whole number in a range, both ends included, with at most one special value.

    Attributes:
        low, high: Bounds; ``high`` is reached from ``low`` in full steps.
        step: The distance of neighboring values.
        log: Values are on a logarithmic scale.
        special: At most one further value (``0``, ``None``).
    """

    knob: Knob
    low: int
    high: int
    step: int = 1
    log: bool = False
    special: tuple[FieldValue, ...] = ()

    @property
    def path(self) -> str:
        return self.knob.path

    @property
    def count(self) -> int:
        return len(self.span) + len(self.special)

    @property
    def span(self) -> range:
        return range(self.low, self.high + 1, self.step)

    def __contains__(self, value: FieldValue) -> bool:
        if any(same(value, v) for v in self.special):
            return True
        return isinstance(value, int) and not isinstance(value, bool) and value in self.span

    def __iter__(self) -> Iterator[FieldValue]:
        yield from self.special
        yield from self.span

    def draw(self, rng: random.Random) -> FieldValue:
        """A random value: the special one with probability 0.5, else uniform or log-uniform."""
        if self.special and rng.random() < 0.5:
            return self.special[0]
        if not self.log:
            return rng.choice(self.span)
        drawn = math.exp(rng.uniform(math.log(self.low - 0.5), math.log(self.high + 0.5)))
        return min(self.high, max(self.low, round(drawn)))

    def coarse(self, points: int) -> ChoiceParameter:
        """The special value and at most ``points`` values of the range, evenly spaced."""
        if len(self.span) <= points:
            return ChoiceParameter(self.knob, tuple(self))
        shares = [i / (points - 1) for i in range(points)]
        if self.log:
            exact = [self.low * (self.high / self.low) ** share for share in shares]
        else:
            exact = [self.low + (self.high - self.low) * share for share in shares]
        snapped = (self.low + round((x - self.low) / self.step) * self.step for x in exact)
        return ChoiceParameter(self.knob, (*self.special, *dict.fromkeys(snapped)))


Parameter = ChoiceParameter | RangeParameter


def same(one: FieldValue, other: FieldValue) -> bool:
    """Whether two values are equal and of one type: ``True`` is not 1."""
    return type(one) is type(other) and one == other


def text(value: FieldValue) -> str:
    """The text of a value, unique within a parameter: `unset`, `on`, `4,8`, `16`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def sizes_in(value: FieldValue) -> tuple[int, ...]:
    """The numbers of a list, such as preferred batch sizes; empty for any other value."""
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else ()


def up_to(parameter: Parameter, memory_bytes: int) -> Parameter:
    """A list of sizes, without those that do not fit in the memory.

    Raises:
        SpecError: No size is left.
    """
    left = tuple(v for v in parameter if v is None or int(str(v)) < memory_bytes)
    if not left:
        raise SpecError(
            f"{parameter.path}: each size is larger than this machine's memory, "
            f"{bytes_text(memory_bytes)}",
            "list smaller ones, such as 64MiB, or off",
        )
    return ChoiceParameter(parameter.knob, left)


def without(parameter: Parameter, value: FieldValue) -> Parameter:
    """The parameter without ``value``, unless that is its only one."""
    left = tuple(v for v in parameter if v != value) if value in parameter else ()
    return ChoiceParameter(parameter.knob, left) if left else parameter
