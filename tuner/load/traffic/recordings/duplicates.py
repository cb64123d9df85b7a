"""Requests of a recording that repeat an earlier request byte for byte, and their cache hits.

Triton's local response cache drops the least recently used entry (server, docs/user_guide/
response_cache.md), so a repeat is a hit if fewer distinct responses than the cache holds were used
since the last one. Source of the stack distance: Mattson et al., Evaluation techniques for storage
hierarchies (1970).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tuner.load.traffic.recordings.lines import UNKNOWN, Recording
from tuner.load.traffic.repeats import Order
from tuner.spec.units import count_text, digits

#: Number of requests, from the first on, whose order is examined.
MOST_REQUESTS = 200_000
#: Shares of the repeats for which the report gives a cache size.
_SHARES = (0.5, 0.9, 1.0)
#: With a smaller share of repeats, there is nothing to report.
LEAST_SHARE = 0.01
#: A client with this share of the repeats is named.
_CLIENT_SHARE = 0.5


@dataclass(frozen=True)
class Duplicates:
    """The repeats in a recording.

    Attributes:
        requests: Number of examined requests.
        repeats: Number of these that equal an earlier one.
        caches: Number of responses in a cache, and the share of requests that it answers.
        distances: Stack distance of each repeat, see `stack_distances`.
        client: The client with most of the repeats; "" if no client stands out.
        client_repeats: Number of that client's repeats.
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
        """The share of requests that a cache of this many responses answers, 0..1."""
        return float((self.distances <= responses).sum()) / self.requests

    def sentences(self, response_bytes: int | None = None) -> Iterator[str]:
        """The findings as sentences; ``response_bytes``: size of a response, if known."""
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
                "the repeats: can it reuse its answers?"
            )


def duplicates(recording: Recording) -> Duplicates | None:
    """The repeats; None if lines do not give the inputs of requests."""
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
    """Distinct requests since each request's last equal one, itself included; 0: no equal one.

    A cache answers a request if it holds at least this many responses.
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
