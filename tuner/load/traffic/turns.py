"""The order of several streams or shapes with shares: evenly mixed, or random.

A random order is that of real traffic, in which long requests can meet. But among 459 requests, the
number for a p99, a free draw has two percentage points more or less of a share of 30% by chance
alone. So the shares are exact in each span of a run, as far as whole numbers allow. Apart from
that the order is random, as with arrivals (`tuner.load.traffic.arrivals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import numpy.typing as npt

from tuner.load.traffic.repeats import Order

_GOLDEN = (5.0**0.5 - 1.0) / 2.0
_TURNS = 3  # the seed's stream for turns; see `traffic.repeats` for others


def evenly(shares: Sequence[float], count: int) -> Order:
    """``count`` turns, evenly mixed, also for processes that take every n-th turn.

    The fractional parts of multiples of the golden ratio are spread evenly, and so is every n-th of
    them. A part without a share has no turn.
    """
    ends = np.cumsum(shares)
    places = np.arange(max(count, 1)) * _GOLDEN % 1.0 * ends[-1]
    order: Order = np.searchsorted(ends, places, side="right")
    return order


def by_chance(shares: Sequence[float], counts: Sequence[int], seed: int) -> Order:
    """Random turns in spans of these counts, with exact shares in each span.

    The k-th turn of a seed is the same for every count: a higher level has the same turns.
    """
    rng = np.random.default_rng((seed, _TURNS))
    return np.concatenate([_drawn(shares, rng.random(count)) for count in counts]).astype(np.int64)


def _drawn(shares: Sequence[float], places: npt.NDArray[np.float64]) -> Order:
    """Gives the lowest places to the first part, according to its share, and so on."""
    ends = np.rint(np.cumsum(shares) / np.sum(shares) * places.size)
    order: Order = np.searchsorted(ends, places.argsort().argsort(), side="right")
    return order


def in_order(built: Sequence[Sequence[bytes]], order: npt.NDArray[np.int64]) -> list[bytes]:
    """Requests in the order of turns; the requests of each part repeat when exhausted."""
    by_stream = [cycle(requests) for requests in built]
    return [next(by_stream[number]) for number in order.tolist()]
