"""Conditions of fields: a field has an effect, or a value, only with some values of its parent.

`KNOWN` lists conditions by path. The path of a parent has fewer dots, or comes first in the spec.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tuner.modelconfig.values import FieldValue
from tuner.space.parameters import ChoiceParameter, Parameter, sizes_in
from tuner.spec.paths import (
    DIRECT,
    DIRECT_DELAY,
    DYNAMIC_BATCHING,
    MAX_BATCH_SIZE,
    OLDEST,
    OLDEST_PREFERRED,
    PREFERRED,
    SLOT_UTILIZATION,
    is_inside,
    is_of_queue,
)


@dataclass(frozen=True)
class Condition:
    """The condition of a field inside a searched message; others are subclasses.

    Attributes:
        parent: Path of the field it depends on. Where that field is not searched, the value in the
            model's config counts.
    """

    parent: str

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        """The values allowed with ``beside``, the parent's value; None: the field has no effect."""
        return parameter if beside is True else None

    def fit(self, value: FieldValue, left: Parameter, beside: FieldValue) -> FieldValue:
        """The value with the same effect that is allowed with ``beside``, the parent's value."""
        return value


@dataclass(frozen=True)
class InsideBatcher(Condition):
    """A field of a batcher has an effect only for a ``max_batch_size`` of at least ``least``."""

    least: int = 2

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        return parameter if _integer(beside) >= self.least else None


@dataclass(frozen=True)
class Batcher(Condition):
    """There is a batcher only for a ``max_batch_size`` of at least ``least``."""

    least: int = 2

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter:
        if _integer(beside) >= self.least:
            return parameter
        return ChoiceParameter(parameter.knob, (None,))

    def fit(self, value: FieldValue, left: Parameter, beside: FieldValue) -> FieldValue:
        return value if _integer(beside) >= self.least else None


class PreferredSizes(Condition):
    """No preferred size is above ``max_batch_size``; that size alone is Triton's default."""

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter:
        batch = _integer(beside)
        sizes = dict.fromkeys(v for v in parameter if max(sizes_in(v), default=0) <= batch)
        if None in sizes:
            sizes.pop((batch,), None)
        return ChoiceParameter(parameter.knob, tuple(sizes))

    def fit(self, value: FieldValue, left: Parameter, beside: FieldValue) -> FieldValue:
        kept = tuple(size for size in sizes_in(value) if size <= _integer(beside))
        return None if not kept or (kept == (beside,) and None in left) else kept


class WithSlots(Condition):
    """A delay of the direct strategy has an effect only with a minimum slot utilization."""

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        return parameter if beside else None


class Direct(Condition):
    """The direct and the oldest strategy for sequences exclude each other."""

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        return None if beside is True else parameter


#: Conditions by path; `conditions_of` adds those of batchers and of fields in searched messages.
KNOWN: dict[str, Condition] = {
    PREFERRED: PreferredSizes(MAX_BATCH_SIZE),
    OLDEST_PREFERRED: PreferredSizes(MAX_BATCH_SIZE),
    DIRECT_DELAY: WithSlots(SLOT_UTILIZATION),
}


def least_batch(searched: Collection[str], *, queued: bool) -> int:
    """The least ``max_batch_size`` with a batcher: 1 where the model's queue has a policy, else 2.

    A batcher for batches of one still limits, times out and orders waiting requests.

    Args:
        searched: Paths of the model's parameters.
        queued: The config of the model has a queue policy.
    """
    return 1 if queued or any(map(is_of_queue, searched)) else 2


def conditions_of(path: str, searched: Collection[str], least: int = 2) -> tuple[Condition, ...]:
    """The conditions of a field, that of the innermost searched message around it first.

    Args:
        least: `least_batch` of the field's model.
    """
    known = (KNOWN[path],) if path in KNOWN else ()
    if path == DYNAMIC_BATCHING:
        return (Batcher(MAX_BATCH_SIZE, least),)
    if OLDEST in searched and is_inside(path, DIRECT):
        known = (Direct(OLDEST), *known)
    around = [p for p in (*searched, DYNAMIC_BATCHING) if is_inside(path, p)]
    if not around:
        return known
    nearest = max(around, key=len)
    inside = InsideBatcher(MAX_BATCH_SIZE, least if is_of_queue(path) else 2)
    if nearest not in searched:
        return (inside, *known)
    batches = (inside,) if least == 1 and nearest == DYNAMIC_BATCHING else ()
    return (Condition(nearest), *batches, *known)


def _integer(value: FieldValue) -> int:
    return value if isinstance(value, int) else 0
