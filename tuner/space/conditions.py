"""Fields that mean something, or may have a value, only with certain values of another field.

A condition is an entry of `KNOWN`. Its parent has fewer dots, or comes first in the spec.
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
        parent: Path of the field it depends on: the model's value counts where none is searched.
    """

    parent: str

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        """The values allowed with the parent's; None where the field means nothing."""
        return parameter if beside is True else None

    def fit(self, value: FieldValue, left: Parameter, beside: FieldValue) -> FieldValue:
        """What ``value`` amounts to with the parent's."""
        return value


@dataclass(frozen=True)
class InsideBatcher(Condition):
    """A field of a batcher means something from batches of ``least`` on."""

    least: int = 2

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        return parameter if _integer(beside) >= self.least else None


@dataclass(frozen=True)
class Batcher(Condition):
    """Batches of less than ``least`` need no batcher."""

    least: int = 2

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter:
        if _integer(beside) >= self.least:
            return parameter
        return ChoiceParameter(parameter.knob, (None,))

    def fit(self, value: FieldValue, left: Parameter, beside: FieldValue) -> FieldValue:
        return value if _integer(beside) >= self.least else None


class PreferredSizes(Condition):
    """None above max_batch_size; to prefer just that is Triton's default."""

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
    """A delay of the direct strategy counts only with a share of slots that ends it sooner."""

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        return parameter if beside else None


class Direct(Condition):
    """The strategies of sequences exclude each other."""

    def narrow(self, parameter: Parameter, beside: FieldValue) -> Parameter | None:
        return None if beside is True else parameter


#: By path; those of a batcher and of fields inside a searched message are made where they hold.
KNOWN: dict[str, Condition] = {
    PREFERRED: PreferredSizes(MAX_BATCH_SIZE),
    OLDEST_PREFERRED: PreferredSizes(MAX_BATCH_SIZE),
    DIRECT_DELAY: WithSlots(SLOT_UTILIZATION),
}


def least_batch(searched: Collection[str], *, queued: bool) -> int:
    """The smallest batch that a model has a batcher for: 1 where its queue has a policy.

    A batcher of batches of one still limits, times out and orders what waits.

    Args:
        searched: Paths of the model's parameters.
        queued: The config of the model has a queue policy.
    """
    return 1 if queued or any(map(is_of_queue, searched)) else 2


def conditions_of(path: str, searched: Collection[str], least: int = 2) -> tuple[Condition, ...]:
    """The conditions on a field, that of the nearest searched message around it first.

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
