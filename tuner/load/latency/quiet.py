"""Which stretches of a long window show the config, and not stalls of the machine.

A short window that meets stalls is measured again; on a shared host, a soak of minutes meets some
every time. So a stall is left out, together with the requests it delayed: up to the first request
answered as fast as half of all are. What follows begins in a usual state, as if the load had begun
there. Users' requests are not spared the stalls: `LateShare` tells both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

#: At least this share of the window must be left, or the whole window is judged.
QUIET_SHARE = 0.5
#: Requests may be in flight when a stall begins: this many median latencies before it are left out.
LEAD = 2.0
_CLOCK_US = 1.0  # finer differences are those of the clock

#: From when to when, in seconds.
Span = tuple[float, float]
Values = npt.NDArray[np.float64]


def quiet_spans(
    window: Span, due_s: Values, latency_us: Values, spells: Iterable[Span]
) -> tuple[Span, ...]:
    """What of the window counts; all of it where too little is quiet.

    Args:
        latency_us: Of each; infinite where it was refused.
        spells: Stalls of the machine, by their start, on the same clock.
    """
    if not due_s.size:
        return (window,)
    usual_us = float(np.median(latency_us))
    fast_s = due_s[latency_us <= usual_us + _CLOCK_US]
    quiet, begin = [], window[0]
    for start, end in spells:
        if end <= begin:
            continue
        stop = start - LEAD * usual_us / 1e6
        if stop > begin:
            quiet.append((begin, min(stop, window[1])))
        after = np.searchsorted(fast_s, max(end, begin))
        begin = float(fast_s[after]) if after < fast_s.size else window[1]
    if begin < window[1]:
        quiet.append((begin, window[1]))
    enough = seconds_of(quiet) >= QUIET_SHARE * (window[1] - window[0])
    return tuple(quiet) if enough else (window,)


def seconds_of(spans: Iterable[Span]) -> float:
    """How long they are in all."""
    return sum(end - start for start, end in spans)


def within(moments_s: Values, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """Which moments are in one of the spans."""
    found = np.zeros(moments_s.size, dtype=bool)
    for start, end in spans:
        found |= (moments_s >= start) & (moments_s < end)
    return found


def on_one_clock(moments_s: Values, spans: Sequence[Span]) -> Values:
    """Moments within the spans, on a clock that runs in these only, from 0."""
    starts, ends = np.array(spans).T
    before = np.concatenate([[0.0], np.cumsum(ends - starts)[:-1]])
    which = np.searchsorted(starts, moments_s, side="right") - 1
    return np.asarray(moments_s - starts[which] + before[which])
