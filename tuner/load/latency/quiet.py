"""Which requests of a long window tell of the config, and not of the machine's other guests.

On a shared host the hypervisor gives the CPU away in spells of seconds to minutes. A short window
that meets one is measured again; a soak of minutes meets one every time. So the requests of a spell
are left out, with those that it held up: until the first that was answered as fast as half of all
are. What comes after it begins in a usual state, as if the load had begun there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

#: What is left must be this share of the window, or the window is judged as it is.
QUIET_SHARE = 0.5
#: Requests may be in flight when a spell begins: so many median latencies before it are left out.
LEAD = 2.0
_CLOCK_US = 1.0  # finer differences are those of the clock

Span = tuple[float, float]


def quiet_requests(
    due_s: npt.NDArray[np.float64],
    latency_us: npt.NDArray[np.float64],
    spells_s: Iterable[Span],
) -> tuple[npt.NDArray[np.bool_], Sequence[Span]]:
    """Which requests count, and the spans that were left out.

    Args:
        due_s: When each was due, ascending.
        latency_us: Of each; infinite where it was refused.
        spells_s: From when to when the CPU was given away, on the same clock, ascending.
    """
    counts = np.ones(due_s.size, dtype=bool)
    left_out: list[Span] = []
    if not due_s.size:
        return counts, left_out
    usual_us = float(np.median(latency_us))
    recovered = np.flatnonzero(latency_us <= usual_us + _CLOCK_US)
    for start, end in spells_s:
        first = start - LEAD * usual_us / 1e6
        after = recovered[np.searchsorted(due_s[recovered], end) :]
        last = float(due_s[after[0]]) if after.size else np.inf
        counts &= (due_s < first) | (due_s >= last)
        left_out = _with(left_out, (first, last))
    return counts, left_out


def _with(spans: list[Span], later: Span) -> list[Span]:
    """Joined where they meet."""
    if spans and later[0] <= spans[-1][1]:
        return [*spans[:-1], (spans[-1][0], max(spans[-1][1], later[1]))]
    return [*spans, later]


def quiet_s(window: Span, left_out: Iterable[Span]) -> float:
    """Seconds of the window that are not within a span left out."""
    low, high = window
    return high - low - sum(max(min(e, high) - max(s, low), 0.0) for s, e in left_out)
