"""The parts of a window that count: those outside of stalls of the machine.

Stalls say nothing about the config. A short window with stalls is measured again; on a shared host,
every soak of minutes has some. So a stall is left out of a soak, together with the requests it
delayed: up to the first request with at most the median latency. From there on, the server is in a
usual state, as if the load had started there. Users' requests do meet stalls: `LateShare` reports
both shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

#: Start and end, in seconds.
Span = tuple[float, float]
Values = npt.NDArray[np.float64]

#: If less than this share of the window is quiet, the whole window counts.
QUIET_SHARE = 0.5
#: Requests may be in flight when a stall starts: this many median latencies before it are left out.
LEAD = 2.0
_CLOCK_US = 1.0  # smaller differences are clock noise


def quiet_spans(
    window: Span, due_s: Values, latency_us: Values, spells: Iterable[Span]
) -> tuple[Span, ...]:
    """Parts of the window that count; the whole window if too little of it is quiet.

    Args:
        window: Start and end of the window.
        due_s: When each request was due.
        latency_us: Latency of each request; infinite if it was refused.
        spells: Stalls of the machine by their start, on the same clock.
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
    """Total length of the spans."""
    return sum(end - start for start, end in spans)


def within(moments_s: Values, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """A mask of the moments inside one of the spans."""
    inside = np.zeros(moments_s.size, dtype=bool)
    for start, end in spans:
        inside |= (moments_s >= start) & (moments_s < end)
    return inside


def on_one_clock(moments_s: Values, spans: Sequence[Span]) -> Values:
    """Moments within the spans, on a clock that starts at 0 and runs only during the spans."""
    starts, ends = np.array(spans).T
    before = np.concatenate([[0.0], np.cumsum(ends - starts)[:-1]])
    which = np.searchsorted(starts, moments_s, side="right") - 1
    return np.asarray(moments_s - starts[which] + before[which])
