"""A config's capacity as guessed from its recorded neighbours: where to look for it first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tuner.space.candidate import Candidate

Places = npt.NDArray[np.float64]

#: Over how many doublings capacities resemble each other; and how far a recorded one may be off.
_REACH, _OFF = 20.0, 0.03
#: A delay weighs less than a doubling of instances or batches.
_DELAY_WEIGHT = 0.3
_LEAST_DELAY_US = 250.0


def guess(candidate: Candidate, capacities: Mapping[Candidate, float]) -> float | None:
    """The mean of a Gaussian process through the known logarithms; None if nothing is known.

    Its exponential kernel makes the guess between two neighbours nearly a straight line. Configs
    with and without a dynamic batcher say nothing about each other.
    """
    known = {c: v for c, v in capacities.items() if _batches(c) is _batches(candidate)}
    if not known:
        return None
    places = np.array([_place(c) for c in known])
    logs = np.log(list(known.values()))
    alike = _likeness(places, places) + _OFF**2 * np.eye(len(places))
    to_them = _likeness(np.array([_place(candidate)]), places)[0]
    mean = logs.mean()
    return float(np.exp(mean + to_them @ np.linalg.solve(alike, logs - mean)))


def _likeness(one: Places, other: Places) -> Places:
    """1 for equal places, less with each doubling, weighted by how much it usually matters."""
    apart = np.abs(one[:, None, :] - other[None, :, :]).sum(axis=2)
    return np.exp(-apart / _REACH)


def _batches(candidate: Candidate) -> bool:
    return candidate.of("").get("dynamic_batching") is True


def _place(candidate: Candidate) -> tuple[float, ...]:
    fields = candidate.of("")
    count, batch = fields["instance_group.count"], fields["max_batch_size"]
    sizes = fields.get("dynamic_batching.preferred_batch_size")
    delay = fields.get("dynamic_batching.max_queue_delay_microseconds")
    assert isinstance(count, int)
    assert isinstance(batch, int)
    preferred = [s for s in sizes if isinstance(s, int)] if isinstance(sizes, tuple) else [batch]
    delay_us = float(delay) if isinstance(delay, int) else 0.0
    return (
        math.log2(count),
        0.5 * math.log2(batch),
        2.0 * math.log2(max(preferred)),
        0.5 * math.log2(min(preferred)),
        _DELAY_WEIGHT * math.log2(_LEAST_DELAY_US + delay_us),
    )
