"""The first calls of a recorded config, by what its table says of batches under load.

A batch takes as long as where the fewest instances were. Beside others it takes longer by what the
time under load grew with the instances, if that is more than chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
from recorded_bench import RecordedWorld

from tuner.measurement.batch_profile import BatchCall, BatchTimes
from tuner.search.strategies.batch_rates import BatchRates
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec

#: Growth up to this factor is chance.
CHANCE = 1.05


def first_calls(
    world: RecordedWorld, space: Space, spec: Spec
) -> Callable[[Candidate], tuple[BatchCall, ...]]:
    """By canonical candidate; none where several models compute."""
    rates = BatchRates.of(space, spec)
    if not rates.of_one_model:
        return lambda _: ()
    rows: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for candidate in (space.canonical(space.current), *space.enumerate()):
        curve = world.curves.get(candidate.key)
        for near in () if curve is None else curve.nearest:
            for counted in near.models.values():
                rows[rates.instances(candidate)] += counted.batch_stats
    times = {
        k: batch_times
        for k, calls in rows.items()
        if (batch_times := BatchTimes.of(calls)) is not None
    }
    return lambda candidate: _calls(times, rates.instances(candidate), rates.largest(candidate))


def _calls(times: Mapping[int, BatchTimes], instances: int, most: int) -> tuple[BatchCall, ...]:
    if not times:
        return ()
    alone, beside = times[min(times)], times.get(instances)
    sizes = sorted({*(2**n for n in range(most.bit_length())), most})
    calls = [BatchCall(n, 1, s) for n, s in zip(sizes, _seconds(alone, sizes), strict=True)]
    if instances > 1 and beside is not None:
        both = zip(sizes, _seconds(alone, sizes), _seconds(beside, sizes), strict=True)
        for size, alone_s, beside_s in both:
            shared_s = beside_s / instances if beside_s > CHANCE * alone_s else 0.0
            calls.append(BatchCall(size, instances, alone_s + (instances - 1) * shared_s))
    return tuple(calls)


def _seconds(times: BatchTimes, sizes: list[int]) -> list[float]:
    return [float(s) for s in times.seconds(np.array(sizes))]
