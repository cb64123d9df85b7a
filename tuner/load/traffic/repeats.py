"""In which order inputs are asked for, and what such an order leaves in a cache.

Inputs are numbers from 0; what they hold is for `traffic.inputs` to say. Orders are arrays of
such numbers, drawn from a seed.

The hit rate to expect of an LRU cache is Che's approximation: H. Che, Y. Tung, Z. Wang,
"Hierarchical Web Caching Systems: Modeling, Design and Experimental Results", IEEE JSAC 20(7),
2002. An input stays in the cache as long as it is asked for again within the *characteristic time*
T, which is the same for all: the number of requests in which as many different inputs are asked for
as the cache has room for. With probability p of an input in each request,

    capacity = sum of 1 - exp(-p T)        and        hit rate = sum of p (1 - exp(-p T))
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import read_lines

Order = npt.NDArray[np.int64]

_ORDER = 1  # the seed's stream for orders; arrivals draw from the seed itself
_RECENCY = 2  # and for what a cache remembers


def popularity(unique: int, exponent: float) -> npt.NDArray[np.float64]:
    """Probability of each input to be asked for, in proportion to (n+1)**-exponent.

    Exponent 0 is the uniform distribution; 0.9 is about what web caches see (Breslau et al.,
    INFOCOM 1999).
    """
    weights = np.arange(1, unique + 1, dtype=float) ** -exponent
    probabilities: npt.NDArray[np.float64] = weights / weights.sum()
    return probabilities


def sample(probabilities: npt.NDArray[np.float64], length: int, seed: int) -> Order:
    """Independent draws."""
    cumulative = np.cumsum(probabilities)
    draws = np.random.default_rng((seed, _ORDER)).random(length) * cumulative[-1]
    order: Order = np.searchsorted(cumulative, draws, side="right")
    return order


def duplicate(share: float, length: int, seed: int) -> Order:
    """Each with probability ``share`` the same as an earlier one, any of them alike; else new.

    New ones are numbered in turn. The first is always new.
    """
    rng = np.random.default_rng((seed, _ORDER))
    repeats = rng.random(length) < share
    repeats[:1] = False
    earlier = (rng.random(length) * np.arange(length)).astype(np.int64)
    order = np.cumsum(~repeats) - 1
    for k in np.flatnonzero(repeats).tolist():
        order[k] = order[earlier[k]]
    return order


def replay(log: Order, length: int, seed: int) -> Order:
    """The log, gone round as often as need be from a place the seed chooses."""
    start = int(np.random.default_rng((seed, _ORDER)).integers(log.size))
    order: Order = log[(start + np.arange(length)) % log.size]
    return order


def recency_of_draws(probabilities: npt.NDArray[np.float64], seed: int) -> Order:
    """Every input once in the order it was last asked for, after independent draws without end.

    What an LRU cache holds is the end of this list, as long as it has room. Looking back in time
    an input is met first after an exponential time with its probability as the rate (the draws
    taken as a Poisson process), so the order is that of such times.
    """
    rng = np.random.default_rng((seed, _RECENCY))
    ago = rng.exponential(size=probabilities.size) / probabilities
    return np.argsort(-ago)


def recency_of_log(log: Order) -> Order:
    """Every input of a log once, in the order of its last mention."""
    inputs, from_the_end = np.unique(log[::-1], return_index=True)
    order: Order = inputs[np.argsort(-from_the_end)]
    return order


def read_log(path: Path) -> Order:
    """Numbers of inputs, one a line.

    Raises:
        SpecError: The file cannot be read, or holds something that is no such number.
    """
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        if not line.strip().isdecimal() or len(line) > 18:  # 64 bits
            raise SpecError(f"{path}:{number}: not the number of an input: {line!r}")
    if not lines:
        raise SpecError(f"{path}: the log is empty", "write the number of an input on each line")
    return np.array([int(line) for line in lines], dtype=np.int64)


#: What an answer takes in Triton's local cache beside each output's data. Measured on 24.10: one
#: output of 32 bytes takes 96, two of 1024 each 2192 (names, shapes and the allocator's part).
ENTRY_OVERHEAD_BYTES = 64


def lru_hit_rate(probabilities: npt.NDArray[np.float64], capacity: float) -> float:
    """Share of the requests that hit an LRU cache in its steady state.

    Args:
        probabilities: Of each input in each request, independent of those before; sum 1.
    """
    if capacity <= 0:
        return 0.0
    if capacity >= probabilities.size:
        return 1.0
    kept = -np.expm1(-probabilities * _characteristic_time(probabilities, capacity))
    return float((probabilities * kept).sum())


def _characteristic_time(probabilities: npt.NDArray[np.float64], capacity: float) -> float:
    """In requests."""
    from scipy.optimize import brentq

    def room_left(time: float) -> float:
        return float(capacity + np.expm1(-probabilities * time).sum())

    low, high = capacity, 2.0 * capacity  # in n requests there are at most n different inputs
    while room_left(high) > 0.0:
        low, high = high, 2.0 * high
    return float(brentq(room_left, low, high, rtol=1e-6))
