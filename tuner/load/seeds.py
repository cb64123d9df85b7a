"""The seeds of all arrivals and inputs, so far apart that no arrivals are drawn for two purposes.

Those of a run follow from the seed of its search, a thousand for each, or from its id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sized

#: Proofs draw from here on, from the run's id.
CONFIRMATION_FROM = 1_000_000_000
#: Of the order in which a response cache is filled.
CACHE_FILL = 900_000
#: Of inputs that come back: the same in every measurement; a seed only changes their order.
INPUTS = 20_240_713


def of_search(search_seed: int) -> int:
    """Seed of every load of a search: configs are compared under the same arrivals."""
    return search_seed * 1000 + 1


def of_near_miss(search_seed: int) -> int:
    """Seed for the second chance of a near miss, which may have met bad arrivals."""
    return search_seed * 1000 + 2


def of_confirmation(run_id: str) -> int:
    """Seed of a proof's first round, far from any search's; later rounds count up."""
    drawn = int(hashlib.sha256(run_id.encode()).hexdigest()[:8], 16)
    return CONFIRMATION_FROM + drawn % CONFIRMATION_FROM


def of_rounds(search_seed: int) -> int:
    """Seed of a first round that belongs to no run, else like `of_confirmation`."""
    return search_seed * 1000 + 500_000


def of_soak(first_round: int) -> int:
    """Seed of every soak, after rounds that began with this seed."""
    return first_round + 100_000


def of_simpler(first_round: int) -> int:
    """Seed of what a winner is measured under with changes undone, after its rounds."""
    return first_round + 200_000


def of_looks(first_round: int) -> int:
    """Seed of the first round where rounds are looks at what a saturated config answers."""
    return first_round + 300_000


def of_overload(search_seed: int) -> int:
    """Seed of a run's overloads."""
    return search_seed * 1000 + 700_000


def of_stream(seed: int, stream: str, streams: Sized) -> int:
    """Seed of one of several streams' arrivals and inputs, which the others do not change.

    And of one of several shapes' inputs, from that of their stream.
    """
    if len(streams) == 1:
        return seed
    return seed + (1 + int(hashlib.sha256(stream.encode()).hexdigest()[:5], 16)) * 10**12


def of_start(seed: int, number: int) -> int:
    """Seed of one start of a closed loop that is started several times."""
    return seed + number * 10_000_000


def of_order(seed: int, number: int) -> int:
    """Seed for a new input order, so that a repeated measurement does not hit the cache."""
    return seed + number * 1_000_000_000
