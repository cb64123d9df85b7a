"""Whose turn it is, of several with shares: evenly, or in an order of chance.

An order of chance is that of real traffic, in which long requests meet. But of 459 requests, which
a p99 takes, a free draw has two points more or less of a share of 30% by chance alone. So in each
span of a run the shares are exact, as far as whole numbers allow. Given these the order is free, as
it is with arrivals (`tuner.load.traffic.arrivals`).
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
    """So many turns, evenly mixed, also for processes that take every n-th turn.

    Multiples of the golden ratio, less their whole parts, are spread evenly, and so are every n-th
    of them. What has no share has no turn.
    """
    ends = np.cumsum(shares)
    places = np.arange(max(count, 1)) * _GOLDEN % 1.0 * ends[-1]
    order: Order = np.searchsorted(ends, places, side="right")
    return order


def by_chance(shares: Sequence[float], counts: Sequence[int], seed: int) -> Order:
    """The turns of spans of a run, of so many each, in which each has its share.

    The k-th of a seed is drawn alike, however many there are: at a higher level the same come.
    """
    rng = np.random.default_rng((seed, _TURNS))
    return np.concatenate([_drawn(shares, rng.random(count)) for count in counts]).astype(np.int64)


def _drawn(shares: Sequence[float], places: npt.NDArray[np.float64]) -> Order:
    """Gives the lowest places to the first, by its share, then to the second, and so on."""
    ends = np.rint(np.cumsum(shares) / np.sum(shares) * places.size)
    order: Order = np.searchsorted(ends, places.argsort().argsort(), side="right")
    return order


def in_order(built: Sequence[Sequence[bytes]], order: npt.NDArray[np.int64]) -> list[bytes]:
    """Requests in the order of turns; each one's own are used again and again."""
    by_stream = [cycle(requests) for requests in built]
    return [next(by_stream[number]) for number in order.tolist()]
