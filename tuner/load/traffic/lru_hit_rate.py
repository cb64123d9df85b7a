"""The hit rate to expect of an LRU cache: Che's approximation.

Source: H. Che, Y. Tung, Z. Wang, "Hierarchical Web Caching Systems: Modeling, Design and
Experimental Results", IEEE JSAC 20(7), 2002. An input stays in the cache as long as it is asked
for again within the *characteristic time* T, which is the same for all: the number of requests
in which as many different inputs are asked for as the cache has room for. With probability p of
an input in each request,

    capacity = sum of 1 - exp(-p T)        and        hit rate = sum of p (1 - exp(-p T))
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: What an answer takes in Triton's local cache beside each output's data. Measured on 24.10: one
#: output of 32 bytes takes 96, two of 1024 each 2192 (names, shapes and the allocator's part).
ENTRY_OVERHEAD_BYTES = 64

_PRECISION = 1e-6
_STEPS = 200


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
    """In requests; by bisection of its logarithm, as the sum rises with it."""

    def asked_for(time: float) -> float:
        return float(-np.expm1(-probabilities * time).sum())

    low, high = capacity, 2.0 * capacity  # in n requests there are at most n different inputs
    while asked_for(high) < capacity:
        low, high = high, 2.0 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if high - low < _PRECISION * low:
            break
        low, high = (middle, high) if asked_for(middle) < capacity else (low, middle)
    return high
