"""Whose turn it is, of several with shares: evenly, or in an order of chance.

An order of chance is that of real traffic, in which long requests meet. But a free draw of 459
requests, which a p99 takes, has two points more or less of a share of 30% by chance alone, and
configs would be compared under different mixes. So each stretch of `STRETCH` requests has its
shares, as well as whole numbers allow, and only the order within it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import numpy.typing as npt

from tuner.load.traffic.repeats import Order

STRETCH = 100
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


def by_chance(shares: Sequence[float], count: int, seed: int) -> Order:
    """So many turns, the same for a seed whatever their number: the k-th of it is the k-th."""
    stretches = max(-(-count // STRETCH), 1)
    turns = evenly(shares, stretches * STRETCH).reshape(-1, STRETCH)
    rng = np.random.default_rng((seed, _TURNS))
    drawn = np.array([rng.permutation(turn) for turn in turns], dtype=np.int64)
    order: Order = drawn.ravel()[:count]
    return order


def in_order(built: Sequence[Sequence[bytes]], order: npt.NDArray[np.int64]) -> list[bytes]:
    """Requests in the order of turns; each one's own are used again and again."""
    own = [cycle(requests) for requests in built]
    return [next(own[number]) for number in order.tolist()]
