"""Orders in which inputs are sent, and what such an order leaves in a cache.

Inputs are numbers from 0; `traffic.inputs` gives their contents. Orders are arrays of such numbers,
drawn from a seed.

The expected hit rate of an LRU cache is Che's approximation: H. Che, Y. Tung, Z. Wang,
"Hierarchical Web Caching Systems: Modeling, Design and Experimental Results", IEEE JSAC 20(7),
2002. An input stays in the cache as long as it is used again within the *characteristic time* T,
which is the same for all inputs: the number of requests that contain as many distinct inputs as the
cache has room for. With probability p of an input in each request,

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
_RECENCY = 2  # the seed's stream for the content of a cache


def popularity(unique: int, exponent: float) -> npt.NDArray[np.float64]:
    """Probability of each input in a request, proportional to (n+1)**-exponent.

    Exponent 0 is the uniform distribution; 0.9 is typical of web caches (Breslau et al., INFOCOM
    1999).
    """
    weights = np.arange(1, unique + 1, dtype=float) ** -exponent
    probabilities: npt.NDArray[np.float64] = weights / weights.sum()
    return probabilities


def sample(probabilities: npt.NDArray[np.float64], length: int, seed: int) -> Order:
    """``length`` independent draws."""
    cumulative = np.cumsum(probabilities)
    draws = np.random.default_rng((seed, _ORDER)).random(length) * cumulative[-1]
    order: Order = np.searchsorted(cumulative, draws, side="right")
    return order


def duplicate(share: float, length: int, seed: int) -> Order:
    """An order in which each input repeats, with probability ``share``, any earlier one.

    The other inputs are new, numbered in turn; the first is always new.
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
    """The log, repeated up to ``length``, from a start that the seed chooses."""
    start = int(np.random.default_rng((seed, _ORDER)).integers(log.size))
    order: Order = log[(start + np.arange(length)) % log.size]
    return order


def recency_of_draws(probabilities: npt.NDArray[np.float64], seed: int) -> Order:
    """Every input once, in the order of its last use, after infinitely many independent draws.

    An LRU cache holds the end of this list, as far as it has room. Looking back in time, an input
    first appears after an exponential time with its probability as the rate (with the draws taken
    as a Poisson process), so the order is that of such times.
    """
    rng = np.random.default_rng((seed, _RECENCY))
    ago = rng.exponential(size=probabilities.size) / probabilities
    return np.argsort(-ago)


def recency_of_log(log: Order) -> Order:
    """Every input of a log once, in the order of its last use."""
    inputs, from_the_end = np.unique(log[::-1], return_index=True)
    order: Order = inputs[np.argsort(-from_the_end)]
    return order


def read_log(path: Path) -> Order:
    """Numbers of inputs, one per line.

    Raises:
        SpecError: The file cannot be read, or a line is not such a number.
    """
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        if not line.strip().isdecimal() or len(line) > 18:  # 64 bits
            raise SpecError(f"{path}:{number}: not the number of an input: {line!r}")
    if not lines:
        raise SpecError(f"{path}: the log is empty", "write the number of an input on each line")
    return np.array([int(line) for line in lines], dtype=np.int64)


#: Size of an answer in Triton's local cache beyond the outputs' data. Measured on 24.10: one output
#: of 32 bytes takes 96 bytes, two of 1024 bytes take 2192 (names, shapes, the allocator's part).
ENTRY_OVERHEAD_BYTES = 64


def lru_hit_rate(probabilities: npt.NDArray[np.float64], capacity: float) -> float:
    """Share of requests that hit an LRU cache in its steady state, 0..1.

    Args:
        probabilities: Probability of each input in a request, independent of earlier ones; sum 1.
        capacity: Number of inputs that the cache has room for.
    """
    if capacity <= 0:
        return 0.0
    if capacity >= probabilities.size:
        return 1.0
    kept = -np.expm1(-probabilities * _characteristic_time(probabilities, capacity))
    return float((probabilities * kept).sum())


def _characteristic_time(probabilities: npt.NDArray[np.float64], capacity: float) -> float:
    """The characteristic time, in requests."""
    from scipy.optimize import brentq

    def room_left(time: float) -> float:
        return float(capacity + np.expm1(-probabilities * time).sum())

    low, high = capacity, 2.0 * capacity  # n requests contain at most n distinct inputs
    while room_left(high) > 0.0:
        low, high = high, 2.0 * high
    return float(brentq(room_left, low, high, rtol=1e-6))
