"""Requests of a recording that repeat an earlier one byte for byte, and what a cache makes of them.

Triton's local response cache drops what was used least recently (server, docs/user_guide/
response_cache.md), so a repeat is answered from it if fewer other responses than it holds were used
since. Source of the stack distance: Mattson et al., Evaluation techniques for storage hierarchies
(1970).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tuner.load.traffic.recordings.lines import UNKNOWN, Recording
from tuner.load.traffic.repeats import Order
from tuner.spec.units import count_text, digits

#: Requests of which the order is looked at, from the first on.
MOST_REQUESTS = 200_000
#: Shares of the repeats for which the size of a cache is told.
_SHARES = (0.5, 0.9, 1.0)
#: With fewer repeats than this share there is nothing to tell.
LEAST_SHARE = 0.01
#: A client with this share of the repeats is named.
_CLIENT_SHARE = 0.5


@dataclass(frozen=True)
class Duplicates:
    """What repeats in a recording.

    Attributes:
        requests: Those that were looked at.
        repeats: Of these, those that are equal to an earlier one.
        caches: Responses that a cache holds, and the share of the requests that it answers then.
        distances: Of the repeats, as `stack_distances` counts them.
        client: Whose repeats are most of them, and how many these are; "" where nobody is named.
    """

    requests: int
    repeats: int
    caches: tuple[tuple[int, float], ...]
    distances: Order = field(repr=False, compare=False)
    client: str = ""
    client_repeats: int = 0

    @property
    def share(self) -> float:
        return self.repeats / self.requests

    def answered(self, responses: int) -> float:
        """The share of the requests that a cache of so many responses answers."""
        return float((self.distances <= responses).sum()) / self.requests

    def sentences(self, response_bytes: int | None = None) -> Iterator[str]:
        """``response_bytes``: of one response, where that is known."""
        if self.share < LEAST_SHARE:
            return
        sizes = []
        for count, share in self.caches:
            size = "" if response_bytes is None else f", {count * response_bytes:,} bytes"
            sizes.append(f"{share:.0%} with {count_text(count, 'response')}{size}")
        yield (
            f"{self.repeats:,} of {self.requests:,} requests ({self.share:.0%}) repeat an earlier "
            f"one byte for byte; a response cache would answer {', '.join(sizes)}"
        )
        if self.client:
            yield (
                f"{self.client} sends {digits(100 * self.client_repeats / self.repeats, 2)}% of "
                "the repeats: can it keep its answers?"
            )


def duplicates(recording: Recording) -> Duplicates | None:
    """None where lines do not say what a request carries."""
    contents = recording.contents[:MOST_REQUESTS]
    if bool((contents == UNKNOWN).any()):
        return None
    distances = stack_distances(contents)
    repeats = distances[distances > 0]
    if not repeats.size:
        return Duplicates(contents.size, 0, (), repeats)
    needed = [int(np.quantile(repeats, share, method="higher")) for share in _SHARES]
    caches = {n: float((repeats <= n).sum()) / contents.size for n in needed}
    name, count = _client(recording, np.flatnonzero(distances))
    return Duplicates(contents.size, int(repeats.size), tuple(caches.items()), repeats, name, count)


def _client(recording: Recording, repeats: Order) -> tuple[str, int]:
    whose = Counter(recording.callers[repeats].tolist())
    number, count = whose.most_common(1)[0]
    name = recording.clients[number]
    enough = name and len(recording.clients) > 1 and count >= _CLIENT_SHARE * whose.total()
    return (name, count) if enough else ("", 0)


def stack_distances(contents: Order) -> Order:
    """How many different requests came since each one's last like, itself counted; 0: no like.

    A cache answers it if it holds at least so many responses.
    """
    last: dict[int, int] = {}
    tree, distances = [0] * (contents.size + 1), np.zeros(contents.size, np.int64)

    def add(place: int, value: int) -> None:
        while place < len(tree):
            tree[place] += value
            place += place & -place

    def total(place: int) -> int:
        amount = 0
        while place:
            amount += tree[place]
            place -= place & -place
        return amount

    for number, content in enumerate(contents.tolist()):
        before = last.get(content)
        if before is not None:
            distances[number] = total(number) - total(before + 1) + 1
            add(before + 1, -1)
        last[content] = number
        add(number + 1, 1)
    return distances
