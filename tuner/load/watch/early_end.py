"""Whether a running measurement has certainly missed a latency SLO, so that it may end early.

A request that was due longer ago than the bound and has no answer yet is certainly late. How many
there are follows from two counts: the requests due until that long ago, less all answers. A server
that answers fewer than arrive owes these to the latest of them, whose number in the window counts.
Once it is more than the SLO allows of *all* requests of the planned window, that is missed.

Both counts are taken from outside while the load runs, with an estimate of when it began, and
requests may overtake each other. So this only signals the end; `check_decided` verifies it against
the time stamps of every request.

Our own client knows what became of each request. There those answered too late count as well:
`is_lost` says when, and nothing is estimated but the start, by less than a millisecond.
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

#: Requests answered so far, with and without success, from any moment on.
Answered = Callable[[], int]

#: How long a load has lasted, in seconds, and for each stream (all of those that share the level as
#: "") when its requests were answered, from the start: infinite for those that were not so far, NaN
#: for those refused or failed. None before the start.
Progress = Callable[[], tuple[float, Mapping[str, Times]] | None]

#: Until the first answer, and from then on, the counter is read this often.
_FIRST_LOOKS_S = 0.03
_LOOKS_S = 0.2
#: The counts are estimates: this many times the needed number must be late ...
_MARGIN = 1.2
#: ... and what is left of the window be so long, and hold so many answers at the rate so far, that
#: its throughput says something.
_LEAST_S, _LEAST_ANSWERED = 0.4, 20
#: Of a window without the stalls of the machine this many times the allowed number must be late:
#: what a stall made late is not known while the load runs, and is left out in the end.
_STALLS = 2.0


class SloLost:
    """Asked again and again while a load runs; True once the window is certainly lost.

    ``due`` are the moments at which each stream's requests are due, from the start of the load. The
    counter is of them all: more late ones than all bounds allow together are too many for one.
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
        until_s = at_s - _wait_s(self._window)
        before, due = np.searchsorted(self._due_s, (self._window.warmup_s, until_s))
        return bool(due - max(answered, before) > _MARGIN * self._allowed)


class TooManyLate:
    """The same where it is known of each request when it was answered.

    ``due`` are the moments at which the requests of each stream are due, as in `Progress`.
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
    """Latencies, ascending, of the window's requests of which it is decided whether they are late.

    Infinite for those that are, since they have no answer yet. Decided is whatever was due longer
    ago than any bound allows, by a millisecond: the figures may take a load to have begun that
    much later (with the send that lagged least). The refused are not among them.
    """
    start_s, end_s = window.span_s
    slack_s = LATE_US / 1e6
    inside = (due_s >= start_s) & (due_s < min(at_s - _wait_s(window) - slack_s, end_s))
    latencies_us = 1e6 * (answered_s - due_s)[inside] - LATE_US
    return np.sort(latencies_us[~np.isnan(latencies_us)])


def is_lost(
    latencies_us: Mapping[str, Times],
    due: Mapping[str, Times],
    planned: Window,
    margin: float = 1.0,
) -> bool:
    """Whether more requests are late than an SLO allows of all those of the planned window.

    Args:
        latencies_us: Of some or all of each stream's requests in it, ascending.
        margin: So many times more.
    """
    for bound in planned.bounds:
        latencies = latencies_us.get(bound.stream, np.array([]))
        in_time = latencies.searchsorted(bound.within_s * 1e6, side="right")
        allowed = (1.0 - bound.share) * _planned(planned, due[bound.stream])
        if latencies.size - in_time > margin * allowed:
            return True
    return False


def no_early_end() -> bool:
    """The answer of a load that is not to end early."""
    return False


def truncate(window: Window, begun_ns: int, stopped_ns: int) -> Window:
    """What is left of the window of a load that began and was stopped at these moments.

    It ends so long before the stop that what has no answer by then is late by every bound.

    Raises:
        UndecidedError: Nothing is left.
    """
    length_s = (stopped_ns - begun_ns) / 1e9 - window.warmup_s - _wait_s(window)
    if length_s <= 0.0:
        raise _undecided()
    return replace(window, duration_s=min(window.duration_s, length_s))


def check_decided(
    latencies_us: Mapping[str, Times], due: Mapping[str, Times], window: Window, planned: Window
) -> None:
    """Checks that the measured window says enough about the planned one.

    Args:
        latencies_us: Of each stream's requests due in ``window``, ascending; of those never
            answered a lower bound.

    Raises:
        UndecidedError: It does not.
    """
    if window.duration_s < planned.duration_s and not is_lost(latencies_us, due, planned):
        raise _undecided()


def check_answered(answered_count: int, window: Window, planned: Window) -> None:
    """Checks that the measured window has at least one answer: without one there is no latency.

    Raises:
        UndecidedError: It was ended early.
        LoadFailedError: It was as long as planned.
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
    """Whether what is left of the window would say something, and whether anything would be saved.

    ``answered``: so many since the start of the load, which was this long ago.
    """
    left_s = at_s - _wait_s(window) - window.warmup_s
    if left_s < _LEAST_S or answered * left_s < _LEAST_ANSWERED * at_s:
        return False
    return at_s <= window.warmup_s + window.duration_s


def _wait_s(window: Window) -> float:
    """After this long a request without an answer is late by every bound."""
    return max((bound.within_s for bound in window.bounds), default=0.0)


def _allowed(window: Window, stream: str, due_s: Times) -> float:
    """How many of a stream's requests in the window may be late, by the strictest of its bounds."""
    share = max((bound.share for bound in window.bounds if bound.holds_for(stream)), default=0.0)
    return (1.0 - share) * _planned(window, due_s)


def _planned(window: Window, due_s: Times) -> int:
    """Requests of the window."""
    start_s, end_s = window.span_s
    return int(((due_s >= start_s) & (due_s < end_s)).sum())
