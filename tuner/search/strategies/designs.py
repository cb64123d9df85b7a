"""The first trials of a search: the most informative corners of the space.

Configs with large batches show the cost of a batch. Configs with several and with many instances
show how well instances work in parallel. The other settings of the batcher need no design.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from tuner.space.candidate import CACHE, Candidate, FieldValue
from tuner.space.parameters import ChoiceParameter, Knob, Parameter, RangeParameter
from tuner.space.space import Space
from tuner.spec.paths import (
    CACHE_SIZE,
    DELAY,
    DYNAMIC_BATCHING,
    INSTANCES,
    MAX_BATCH_SIZE,
    PREFERRED,
    is_instance_count,
    variable_of,
)

#: Most designs, without the one with a cache.
_PLAIN = 4

_Pick = Callable[[Sequence[FieldValue]], FieldValue]
_first: _Pick = itemgetter(0)
_last: _Pick = itemgetter(-1)


def designs(space: Space) -> tuple[Candidate, ...]:
    """Distinct candidates of the space, at most five, without the current config.

    The first is the most promising one. Few instances come before many: Triton adds instances at
    once, but waits for each one that it removes (1.2 s with the Python backend of tritonserver
    2.51). Where the number of threads is searched, several instances have few threads each, since
    the instances share the CPUs.
    """
    few_threads = dict.fromkeys(filter(variable_of, space.paths), _fewest)
    many = _corner(space, {INSTANCES: _last, MAX_BATCH_SIZE: _last, **few_threads})
    corners = [
        _corner(space, {INSTANCES: _between, MAX_BATCH_SIZE: _last, **few_threads}),
        many,
        _corner(space, {INSTANCES: _last, MAX_BATCH_SIZE: _between, **few_threads}),
        _corner(space, {INSTANCES: _first, MAX_BATCH_SIZE: _last}),
        _corner(space, dict.fromkeys((INSTANCES, MAX_BATCH_SIZE, PREFERRED, DELAY), _middle)),
    ]
    cached = [_cached(space, many)] if space.caches else []
    plain = _new(space, corners)[:_PLAIN]
    chosen = (*plain[:1], *reversed(plain[1:]), *_new(space, cached))
    return tuple(dict.fromkeys(chosen))


def _new(space: Space, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that the space allows, each once, without the current config."""
    allowed = (c for c in candidates if space.contains(c) and not space.violations(c))
    current = space.canonical(space.current)
    return [c for c in dict.fromkeys(allowed) if c not in (current, space.current)]


def _corner(space: Space, picks: Mapping[str, _Pick]) -> Candidate:
    """One candidate; parameters without a pick keep the current value where possible."""
    now = space.values(space.current)
    smallest = dict.fromkeys((INSTANCES, MAX_BATCH_SIZE, PREFERRED, DELAY, CACHE_SIZE), _first)
    # INSTANCES stands for every number of instances.
    chooses: dict[str, _Pick] = {**smallest, DYNAMIC_BATCHING: _on, **picks}
    chosen: dict[Knob, FieldValue] = {}
    for parameter in space.parameters:
        narrowed = space.narrow(parameter, chosen)
        values = [] if narrowed is None else _ascending(narrowed)
        if not values:
            continue
        path, knob = parameter.path, parameter.knob
        pick = chooses.get(INSTANCES if is_instance_count(path) else path)
        if pick is not None:
            chosen[knob] = pick(values)
        else:
            chosen[knob] = now.get(knob) if now.get(knob) in values else values[0]
    return space.candidate(chosen)


def _cached(space: Space, corner: Candidate) -> Candidate:
    parameter = next(p for p in space.parameters if p.knob == CACHE)
    return space.candidate({**space.values(corner), CACHE: _ascending(parameter)[-1]})


def _ascending(parameter: Parameter) -> list[FieldValue]:
    """The values by size, unset ones first; of a wide range, only some."""
    narrowed: Parameter = parameter
    if isinstance(parameter, RangeParameter):
        narrowed = parameter.coarse(9)
    assert isinstance(narrowed, ChoiceParameter)
    return sorted(narrowed.values, key=_size)


def _size(value: FieldValue) -> float:
    if isinstance(value, tuple):
        return max((float(v) for v in value if isinstance(v, int)), default=0.0)
    return float(value) if isinstance(value, (int, float)) else -1.0


def _between(values: Sequence[FieldValue]) -> FieldValue:
    """The value nearest to the geometric mean of the ends; of two as near, the smaller."""
    middle = math.sqrt(max(_size(values[0]), 1.0) * max(_size(values[-1]), 1.0))
    return min(values, key=lambda v: round(abs(math.log(max(_size(v), 1.0) / middle)), 6))


def _fewest(values: Sequence[FieldValue]) -> FieldValue:
    return next((value for value in values if value is not None), values[0])


def _middle(values: Sequence[FieldValue]) -> FieldValue:
    return values[len(values) // 2]


def _on(values: Sequence[FieldValue]) -> FieldValue:
    return True if True in values else values[0]
