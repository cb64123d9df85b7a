"""Whether a running measurement has certainly missed a latency SLO, so that it may end early.

A request that was due longer ago than the bound and has no answer yet is certainly late. The number
of such requests follows from two counts: the requests due up to that time, minus all answers. If a
server answers fewer requests than arrive, the missing answers are those of the latest requests; of
these, the ones in the window count. The SLO is missed once they exceed what the SLO allows of *all*
requests of the planned window.

Both counts are taken from outside during the load, with an estimate of its start, and requests may
overtake each other. So the counts only signal the end; `check_decided` verifies it with the time
stamps of every request.

tune's own client knows the outcome of each request. There, requests answered too late count as
well: `is_lost` decides, and only the start is an estimate, exact to less than a millisecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tuner.errors import InterruptedRunError, LoadFailedError, TunerError, UndecidedError
from tuner.load.latency import LATE_US
from tuner.measurement.window import EarlyEnd, Window

Times = npt.NDArray[np.float64]

#: The number of answered requests, successful or not, counted from any moment.
Answered = Callable[[], int]

#: Seconds since the start of the load, and, by stream, when each request was answered, from the
#: start: infinite without an answer so far, NaN if refused or failed. The streams that share the
#: level are together under "". None before the start.
Progress = Callable[[], tuple[float, Mapping[str, Times]] | None]

#: Intervals between readings of the counter, before and after the first answer.
_FIRST_LOOKS_S = 0.03
_LOOKS_S = 0.2
#: The counts are estimates: this many times the needed number must be late ...
_MARGIN = 1.2
#: ... and the shortened window must have at least this length, and this many answers at the rate so
#: far, for a meaningful throughput.
_LEAST_S, _LEAST_ANSWERED = 0.4, 20
#: In a window without the stalls of the machine, this many times the allowed number must be late:
#: requests that a stall delayed are known only afterwards, and are left out then.
_STALLS = 2.0


class SloLost:
    """Called repeatedly during a load; True once the window has certainly missed an SLO.

    The counter is one for all streams: if more requests are late than all bounds together allow,
    one bound is missed.

    Args:
        due: When each stream's requests are due, in seconds from the start of the load.
        answered: Returns the number of answered requests.
        clock: Returns seconds.
    """

    def __init__(
        self,
        due: Mapping[str, Times],
        window: Window,
        answered: Answered,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._due_s = np.sort(np.concatenate(list(due.values())))
        bounds = tuple(b for b in window.bounds if any(map(b.holds_for, due)))
        self._window = replace(window, bounds=bounds)
        self._allowed = sum(_allowed(window, stream, due_s) for stream, due_s in due.items())
        self._answered = answered
        self._clock = clock
        self._before: int | None = None  # the counter before the load
        self._begin: float | None = None
        self._next = clock()

    def __call__(self) -> bool:
        now = self._clock()
        never = self._window.ends_early is EarlyEnd.NEVER
        if never or not self._window.bounds or now < self._next:
            return False
        try:
            count = self._answered()
        except InterruptedRunError:  # a signal, not the server
            raise
        except TunerError:
            return False
        if self._before is None:
            self._before = count
        answered = count - self._before
        if self._begin is None and answered > 0:
            self._begin = now
        self._next = now + (_FIRST_LOOKS_S if self._begin is None else _LOOKS_S)
        return self._begin is not None and self._lost(now - self._begin, answered)

    def _lost(self, at_s: float, answered: int) -> bool:
        if not _may_end(self._window, at_s, answered):
            return False
        until_s = at_s - self._window.longest_bound_s
        before, due = np.searchsorted(self._due_s, (self._window.warmup_s, until_s))
        return bool(due - max(answered, before) > _MARGIN * self._allowed)


class TooManyLate:
    """Like `SloLost`, for a load of which it is known when each request was answered.

    Args:
        due: When the requests of each stream are due, with the names in `Progress`.
        progress: Returns the answers so far.
        clock: Returns seconds.
    """

    def __init__(
        self,
        due: Mapping[str, Times],
        window: Window,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._due = due
        self._window = window
        self._progress = progress
        self._clock = clock
        self._next = clock()

    def __call__(self) -> bool:
        now = self._clock()
        if not self._window.bounds or now < self._next:
            return False
        self._next = now + _LOOKS_S
        if (seen := self._progress()) is None:
            return False
        at_s, answered_s = seen
        known = {
            name: decided_us(self._due[name], times_s, self._window, at_s)
            for name, times_s in answered_s.items()
        }
        answered = int(np.isfinite(answered_s[""]).sum())
        margin = _STALLS if self._window.quiet_only else 1.0
        if not _may_end(self._window, at_s, answered):
            return False
        return is_lost(known, self._due, self._window, margin)


def decided_us(due_s: Times, answered_s: Times, window: Window, at_s: float) -> Times:
    """Latencies, ascending, of the window's requests that are known to be late or in time.

    Latencies of late requests without an answer are infinite. A request is known to be late or in
    time if it was due longer ago than any bound allows, plus a millisecond: the final figures may
    put the start of the load that much later (by the send with the least lag). Refused requests are
    not included.
    """
    start_s, end_s = window.span_s
    slack_s = LATE_US / 1e6
    inside = (due_s >= start_s) & (due_s < min(at_s - window.longest_bound_s - slack_s, end_s))
    latencies_us = 1e6 * (answered_s - due_s)[inside] - LATE_US
    return np.sort(latencies_us[~np.isnan(latencies_us)])


def is_lost(
    latencies_us: Mapping[str, Times],
    due: Mapping[str, Times],
    planned: Window,
    margin: float = 1.0,
) -> bool:
    """Whether more requests are late than an SLO allows of all requests in the planned window.

    Args:
        latencies_us: Latencies of some or all of each stream's requests in it, ascending.
        due: When the requests of each stream are due.
        margin: Factor by which the number of late requests must exceed the allowed one.
    """
    for bound in planned.bounds:
        latencies = latencies_us.get(bound.stream, np.array([]))
        in_time = latencies.searchsorted(bound.within_s * 1e6, side="right")
        allowed = (1.0 - bound.share) * _planned(planned, due[bound.stream])
        if latencies.size - in_time > margin * allowed:
            return True
    return False


def no_early_end() -> bool:
    """For a load that never ends early."""
    return False


def truncate(window: Window, begun_ns: int, stopped_ns: int) -> Window:
    """The shortened window of a load with this start and early stop, on the wall clock.

    It ends long enough before the stop that a request without an answer is late by every bound.

    Raises:
        UndecidedError: Nothing of the window is left.
    """
    length_s = (stopped_ns - begun_ns) / 1e9 - window.warmup_s - window.longest_bound_s
    if length_s <= 0.0:
        raise _undecided()
    return replace(window, duration_s=min(window.duration_s, length_s))


def check_decided(
    latencies_us: Mapping[str, Times], due: Mapping[str, Times], window: Window, planned: Window
) -> None:
    """Checks that the measured window decides for the planned one.

    Args:
        latencies_us: Latencies of each stream's requests due in ``window``, ascending; a lower
            bound for requests without an answer.
        due: When the requests of each stream are due.

    Raises:
        UndecidedError: It does not.
    """
    if window.duration_s < planned.duration_s and not is_lost(latencies_us, due, planned):
        raise _undecided()


def check_answered(answered_count: int, window: Window, planned: Window) -> None:
    """Checks that the measured window has at least one answer, and so a latency.

    Raises:
        UndecidedError: The window ended early.
        LoadFailedError: The window was as long as planned.
    """
    if answered_count:
        return
    if window.duration_s < planned.duration_s:
        raise _undecided()
    raise LoadFailedError(
        f"no request was answered within the measured window of {planned.duration_s:.2g} s",
        "raise workload.window above the time that one request takes",
    )


def _undecided() -> UndecidedError:
    return UndecidedError("ended early, but no latency SLO was certainly missed")


def _may_end(window: Window, at_s: float, answered: int) -> bool:
    """Whether an early end leaves a meaningful window, and saves any time.

    Args:
        at_s: Time since the start of the load.
        answered: Requests answered since then.
    """
    left_s = at_s - window.longest_bound_s - window.warmup_s
    if left_s < _LEAST_S or answered * left_s < _LEAST_ANSWERED * at_s:
        return False
    return at_s <= window.warmup_s + window.duration_s


def _allowed(window: Window, stream: str, due_s: Times) -> float:
    """Number of a stream's requests in the window that its strictest bound allows to be late."""
    share = max((bound.share for bound in window.bounds if bound.holds_for(stream)), default=0.0)
    return (1.0 - share) * _planned(window, due_s)


def _planned(window: Window, due_s: Times) -> int:
    """Number of requests in the window."""
    start_s, end_s = window.span_s
    return int(((due_s >= start_s) & (due_s < end_s)).sum())
