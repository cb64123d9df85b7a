"""What Model Analyzer's searches can vary in a space, and its configs as candidates of that.

Its quick search knows instances and max_batch_size; its Optuna search delays as well, its brute
search also preferred sizes. It varies one model: of several the first of which it can vary
something. Whatever else the space holds stays as in the current config.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tuner.modelconfig.path import get
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import Knob, Parameter, RangeParameter
from tuner.space.space import Space
from tuner.spec.paths import DELAY, MAX_BATCH_SIZE, PREFERRED

#: Values of a range that has to be listed, as many as the grid search takes.
POINTS = 8

_INSTANCES = re.compile(r"instance_group(\[0\])?\.count")
_BATCHER = re.compile(r"dynamic_batching(\..+)?")


@dataclass(frozen=True)
class Offer:
    """Ascending values of each field, within the bounds of the space.

    ``instances`` always has one at least: Model Analyzer never leaves them out. The others are
    empty where the space does not have the field.
    """

    instances: tuple[int, ...]
    max_batch_sizes: tuple[int, ...] = ()
    delays_us: tuple[int, ...] = ()
    preferred: tuple[tuple[int, ...], ...] = ()

    @property
    def combinations(self) -> int:
        others = (self.max_batch_sizes, self.delays_us, self.preferred)
        return len(self.instances) * math.prod(len(values) or 1 for values in others)


def offered(space: Space) -> Offer:
    """What the space lets Model Analyzer vary; ranges of delays as `POINTS` values."""
    owner = varied_model(space)
    named = {p.path: p for p in space.parameters if p.knob.owner == owner}
    instances = next((p for path, p in named.items() if _INSTANCES.fullmatch(path)), None)
    groups = space.served.models[owner].base.completed.instance_group
    fixed = max(1, groups[0].count) if groups else 1
    return Offer(
        instances=(fixed,) if instances is None else _numbers(instances),
        max_batch_sizes=_numbers(named[MAX_BATCH_SIZE]) if MAX_BATCH_SIZE in named else (),
        delays_us=_numbers(named[DELAY]) if DELAY in named else (),
        preferred=tuple(_sizes(named[PREFERRED])) if PREFERRED in named else (),
    )


def varied_model(space: Space) -> str:
    """Label of the model that is varied; where none can be, of the first that gets requests."""
    owners = (p.knob.owner for p in space.parameters if varied(p.path))
    return next(owners, space.asked[0])


def varied(path: str) -> bool:
    """Some search of Model Analyzer sets this field."""
    return path == MAX_BATCH_SIZE or bool(_INSTANCES.fullmatch(path) or _BATCHER.fullmatch(path))


def nearest(space: Space, message: Any) -> Candidate | None:
    """The candidate nearest to a ModelConfig message that Model Analyzer wants measured.

    Numbers are near by ratio, preferred sizes by the sizes that they share. None when the space
    has no candidate with its max_batch_size at all.
    """
    owner = varied_model(space)
    chosen: dict[Knob, FieldValue] = {}
    for parameter in space.parameters:
        narrowed = space.narrow(parameter, chosen)
        if narrowed is None:
            continue
        if not narrowed.count:
            return None
        path, knob = parameter.path, parameter.knob
        asked = knob.owner == owner and varied(path)
        wanted = get(message, path) if asked else space.current.values.get(knob)
        chosen[knob] = _closest(narrowed, wanted)
    candidate = space.candidate(chosen)
    return candidate if space.contains(candidate) else None


def _numbers(parameter: Parameter) -> tuple[int, ...]:
    """The values, or some of a long range; unset is 0, as Triton reads it."""
    if isinstance(parameter, RangeParameter):
        parameter = parameter.coarse(POINTS)
    return tuple(sorted({number for v in parameter if (number := _number(v)) is not None}))


def _sizes(parameter: Parameter) -> Iterator[tuple[int, ...]]:
    for value in parameter:
        yield tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else ()


def _closest(parameter: Parameter, wanted: FieldValue) -> FieldValue:
    if wanted in parameter:
        return wanted
    number = _number(wanted)
    options = list(_options(parameter, number))
    if isinstance(wanted, tuple) or any(isinstance(o, tuple) for o in options):
        return min(options, key=lambda o: len(set(_members(o)) ^ set(_members(wanted))))
    numeric = [(o, n) for o in options if (n := _number(o)) is not None]
    if number is None or not numeric:
        return options[0]
    return min(numeric, key=lambda pair: abs(math.log((1 + pair[1]) / (1 + number))))[0]


def _options(parameter: Parameter, wanted: int | None) -> Iterator[FieldValue]:
    """All values of a choice; of a range the special one and the one nearest to ``wanted``."""
    if not isinstance(parameter, RangeParameter):
        yield from parameter
        return
    yield from parameter.special
    low, high, step = parameter.low, parameter.high, parameter.step
    inside = min(high, max(low, wanted or 0))
    yield low + round((inside - low) / step) * step


def _number(value: FieldValue) -> int | None:
    if value is None:
        return 0
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _members(value: FieldValue) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()
