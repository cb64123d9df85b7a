"""Seeds of all arrivals and inputs, far enough apart that no two purposes share arrivals.

A run's seeds follow from the seed of its search, in steps of a thousand, or from its id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sized

#: Proofs use seeds from here on, derived from the run's id.
CONFIRMATION_FROM = 1_000_000_000
#: Seed of the order in which a response cache is filled.
CACHE_FILL = 900_000
#: Seed of inputs that come back: the same in every measurement; other seeds change the order only.
INPUTS = 20_240_713


def of_search(search_seed: int) -> int:
    """Seed of every load of a search: all configs get the same arrivals."""
    return search_seed * 1000 + 1


def of_near_miss(search_seed: int) -> int:
    """Seed for repeating a near miss, which may have had unlucky arrivals."""
    return search_seed * 1000 + 2


def of_confirmation(run_id: str) -> int:
    """Seed of a proof's first round, far from any search's; later rounds count up from it."""
    drawn = int(hashlib.sha256(run_id.encode()).hexdigest()[:8], 16)
    return CONFIRMATION_FROM + drawn % CONFIRMATION_FROM


def of_rounds(search_seed: int) -> int:
    """Seed of a first round outside of a run; else like `of_confirmation`."""
    return search_seed * 1000 + 500_000


def of_soak(first_round: int) -> int:
    """Seed of every soak after rounds whose first seed is ``first_round``."""
    return first_round + 100_000


def of_simpler(first_round: int) -> int:
    """Seed for measuring a winner with changes undone, after its rounds."""
    return first_round + 200_000


def of_looks(first_round: int) -> int:
    """Seed of the first look, where rounds only measure what a saturated config answers."""
    return first_round + 300_000


def of_overload(search_seed: int) -> int:
    """Seed of a run's overloads."""
    return search_seed * 1000 + 700_000


def of_stream(seed: int, stream: str, streams: Sized) -> int:
    """Seed of one stream's arrivals and inputs, independent of other streams.

    Also the seed of one shape's inputs, from the seed of its stream.
    """
    if len(streams) == 1:
        return seed
    return seed + (1 + int(hashlib.sha256(stream.encode()).hexdigest()[:5], 16)) * 10**12


def of_start(seed: int, number: int) -> int:
    """Seed of one start of a closed loop that has several starts."""
    return seed + number * 10_000_000


def of_order(seed: int, number: int) -> int:
    """Seed of another input order, so that a repeated measurement does not hit the cache."""
    return seed + number * 1_000_000_000
