"""The first trials of a search with a model: corners of the space that tell most about it.

What a batch costs shows where large batches form (one instance, no delay, overloaded), what runs
alone on the device shows where many instances work at once, and the batcher's own settings show
where it waits for preferred sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.space import cache
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import ChoiceParameter, Parameter, RangeParameter
from tuner.space.space import DYNAMIC_BATCHING, MAX_BATCH_SIZE, PREFERRED, Space

DELAY = "dynamic_batching.max_queue_delay_microseconds"
_COUNTS = ("instance_group.count", "instance_group[0].count")

_Pick = Callable[[Sequence[FieldValue]], FieldValue]


def designs(space: Space) -> tuple[Candidate, ...]:
    """Distinct candidates of the space, at most four, the current config not among them.

    The fourth, with the largest cache, only where the cache is searched.
    """
    corners = [
        _corner(space, count=_last, batch=_last, preferred=_first, delay=_first),
        _corner(space, count=_first, batch=_last, preferred=_first, delay=_first),
        _corner(space, count=_middle, batch=_middle, preferred=_middle, delay=_middle),
    ]
    if space.restarts:
        corners.append(_cached(space, corners[0]))
    known = [c for c in corners if space.contains(c) and not space.violations(c)]
    return tuple(c for c in dict.fromkeys(known) if c != space.current)


def _corner(space: Space, count: _Pick, batch: _Pick, preferred: _Pick, delay: _Pick) -> Candidate:
    """One candidate; what the twin knows nothing about stays as it is where it can."""
    now = space.values(space.current)
    chosen: dict[str, FieldValue] = {}
    for parameter in space.parameters:
        narrowed = space.narrowed(parameter, chosen)
        values = [] if narrowed is None else _ascending(narrowed)
        if not values:
            continue
        path = parameter.path
        if path in _COUNTS:
            chosen[path] = count(values)
        elif path == MAX_BATCH_SIZE:
            chosen[path] = batch(values)
        elif path == DYNAMIC_BATCHING:
            chosen[path] = True if True in values else values[0]
        elif path == PREFERRED:
            chosen[path] = preferred(values)
        elif path == DELAY:
            chosen[path] = delay(values)
        elif path == cache.SIZE:
            chosen[path] = values[0]
        else:
            chosen[path] = now[path] if now.get(path) in values else values[0]
    return space.candidate(chosen)


def _cached(space: Space, corner: Candidate) -> Candidate:
    parameter = next(p for p in space.parameters if p.path == cache.SIZE)
    return space.candidate({**space.values(corner), cache.SIZE: _ascending(parameter)[-1]})


def _ascending(parameter: Parameter) -> list[FieldValue]:
    """The values by size, unset ones first; of a wide range only some."""
    narrowed: Parameter = parameter
    if isinstance(parameter, RangeParameter):
        narrowed = parameter.coarse(9)
    assert isinstance(narrowed, ChoiceParameter)
    return sorted(narrowed.values, key=_size)


def _size(value: FieldValue) -> float:
    if isinstance(value, tuple):
        return max((float(v) for v in value if isinstance(v, int)), default=0.0)
    return float(value) if isinstance(value, (int, float)) else -1.0


def _first(values: Sequence[FieldValue]) -> FieldValue:
    return values[0]


def _middle(values: Sequence[FieldValue]) -> FieldValue:
    return values[len(values) // 2]


def _last(values: Sequence[FieldValue]) -> FieldValue:
    return values[-1]
