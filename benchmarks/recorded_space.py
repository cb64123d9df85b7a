"""The part of a table's space that is recorded in full, and the sample that is measured again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recorded_table import Table, spec_path

from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import ChoiceParameter, Parameter, RangeParameter
from tuner.space.space import Space
from tuner.steps.job import Job, Request, prepare

#: Configs of the sample, and its seed.
SAMPLE, _SEED = 40, 4
DELAY = "dynamic_batching.max_queue_delay_microseconds"
#: A part with fewer configs is not worth searching.
_FEWEST = 8


def covered(name: str, table: Table) -> Job:
    """The job of a table's spec, without values for which a config is not recorded.

    Values with the largest missing share go first, but none that the current config has.

    Raises:
        ValueError: Next to nothing is left, or the current config is not recorded.
    """
    job = prepare(Request(spec=spec_path(name)))
    recorded, space = set(table.firsts()), job.space
    while missing := [c for c in space.enumerate() if c.key not in recorded]:
        space = _without(space, missing)
    if space.size().count < _FEWEST:
        raise ValueError(f"the table {name} records no part of the space in full")
    return replace(job, space=space)


def _without(space: Space, missing: Sequence[Candidate]) -> Space:
    """The space without the value of which most is missing."""
    every = list(space.enumerate())

    def lacks(value: tuple[Parameter, FieldValue]) -> tuple[float, int]:
        knob = value[0].knob
        have = [sum(c.values.get(knob) == value[1] for c in some) for some in (missing, every)]
        return have[0] / max(have[1], 1), -have[1]

    worst = max(_dispensable(space), key=lacks, default=None)
    if worst is None:
        raise ValueError("the current config is not recorded")
    parameter, value = worst
    left = tuple(v for v in _values(parameter) if v != value)
    narrowed = ChoiceParameter(parameter.knob, left)
    return replace(
        space, parameters=tuple(narrowed if p is parameter else p for p in space.parameters)
    )


def _dispensable(space: Space) -> Iterator[tuple[Parameter, FieldValue]]:
    """Every value but the current config's, as long as it is not the only one."""
    now = space.values(space.canonical(space.current))
    for parameter in space.parameters:
        values = _values(parameter)
        yield from (
            (parameter, v)
            for v in values
            if len(values) > 1 and v != now.get(parameter.knob, values[0])
        )


def _values(parameter: Parameter) -> tuple[FieldValue, ...]:
    listed = (
        parameter.coarse(parameter.count) if isinstance(parameter, RangeParameter) else parameter
    )
    return tuple(listed)


def sampled(space: Space) -> list[Candidate]:
    """The configs whose repeats say how noisy the table is: chosen by chance, not by result."""
    every = sorted(space.enumerate(), key=lambda c: c.key)
    return random.Random(_SEED).sample(every, min(SAMPLE, len(every)))
