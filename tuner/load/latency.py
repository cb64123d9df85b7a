"""From time stamps to latencies: what happened inside the measured window.

Open loop: a latency counts from the moment its request was *due*, whether or not the client
sent it then, and requests that were never answered are not forgotten. Otherwise an overloaded
server would look best when it is slowest (coordinated omission).

Stalls of the machine say nothing about the config. A short window that meets some is measured
again; on a shared host, a soak of minutes meets some every time. So a stall is left out, together
with the requests it delayed: up to the first request answered as fast as half of all are. What
follows begins in a usual state, as if the load had begun there. Users' requests are not spared the
stalls: `LateShare` tells both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError
from tuner.load.course import course_of
from tuner.measurement.measurement import Course, Figures, LoadPoint, Measurement, Slice
from tuner.measurement.responses import percentile
from tuner.measurement.window import Window
from tuner.spec.slo import Slo

#: From when to when, in seconds.
Span = tuple[float, float]
Values = npt.NDArray[np.float64]

_NONE: Values = np.array([])

#: Percentiles of a measurement, as shares.
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_ENOUGH_SENDS = 100
LATE_US = 1000.0  # perf_analyzer calls a send late by the same measure
#: At least this share of the window must be left, or the whole window is judged.
QUIET_SHARE = 0.5
#: Nothing being answered is a gap, if somebody waits, from this many times the shortest latency on,
#: and from this long on; a few of them are not how a server works.
GAP, LEAST_GAP_S, MOST_GAPS = 5.0, 0.05, 3
#: Requests may be in flight when a stall begins: this many median latencies before it are left out.
LEAD = 2.0
_CLOCK_US = 1.0  # finer differences are those of the clock


@dataclass(frozen=True)
class AnsweredRequests:
    """Every request that was answered during a run, in the order of sending.

    Attributes:
        answered_ns: When its last response came.
        end_ns: End of the run: what was answered later is not known.
    """

    sent_ns: npt.NDArray[np.int64]
    answered_ns: npt.NDArray[np.int64]
    end_ns: int


@dataclass(frozen=True)
class Observed:
    """The window's figures; see `tuner.measurement.measurement.Measurement` for what they mean.

    ``start_ns`` and ``end_ns`` are the window's bounds on the wall clock, and ``quiet`` is what of
    it counts, in seconds from the start of the load.
    """

    start_ns: int
    end_ns: int
    latencies_us: Values
    answered_count: int
    sent_per_s: float
    mean_in_flight: float
    unanswered_count: int = 0
    late_sends: float | None = None
    send_lag_p99_us: float | None = None
    due_per_s: float | None = None
    slices: tuple[Slice, ...] = ()
    by_arrival_us: Values | None = None
    all_by_arrival_us: Values | None = None
    outside_gaps_us: Values | None = None
    course: Course | None = None
    quiet: tuple[Span, ...] = ()
    left_out_s: float = 0.0

    @property
    def begin_ns(self) -> int:
        """The start of the load on the wall clock."""
        return self.start_ns - round(self.quiet[0][0] * 1e9)


def observe_open(
    requests: AnsweredRequests,
    due_s: Values,
    window: Window,
    refused_s: Values = _NONE,
    spells_ns: Iterable[tuple[int, int]] = (),
    begin_ns: int | None = None,
    quiet: tuple[Span, ...] = (),
) -> Observed:
    """The window of an open-loop run.

    The k-th request sent is the one due k-th: requests are sent in order, and those missing
    from the export are the last, still in flight when the run ended. (Where answers overtake
    each other this takes a request to be due earlier than it was, never later.)

    Args:
        refused_s: When the refused requests were due, which are in neither of these.
        spells_ns: Stalls of the machine, on the wall clock: left out with the requests they
            delayed.
        begin_ns: The start of the load on the wall clock; None: as these requests tell it.
        quiet: What counts, where that is known already, from all requests that these are part of.
    """
    count = requests.sent_ns.size
    due_s = _go_round(due_s, count)
    begin_ns = begun_ns(requests, due_s) if begin_ns is None else begin_ns
    end_s = (requests.end_ns - begin_ns) / 1e9
    answered_s = (requests.answered_ns - begin_ns) / 1e9
    latency_us = 1e6 * np.append(answered_s - due_s[:count], end_s - due_s[count:])
    latency_us[count:] = np.maximum(latency_us[count:], latency_us[:count].max(initial=0.0))
    by_arrival = _by_arrival(due_s, latency_us, refused_s, window)
    spells = [((a - begin_ns) / 1e9, (b - begin_ns) / 1e9) for a, b in spells_ns]
    quiet = quiet or quiet_spans(window.span_s, *by_arrival, spells)
    inside = within(due_s, quiet)
    unanswered = int(inside[count:].sum())
    sent_s = (requests.sent_ns - begin_ns) / 1e9
    lag_us = 1e6 * (sent_s - due_s[:count])
    # under an overload few requests due inside are answered: then all of them judge the sends
    counted = inside[:count] if inside[:count].sum() >= _ENOUGH_SENDS else slice(None)
    counts = inside | ~within(due_s, (window.span_s,))
    ends_s = np.append(answered_s, np.full(due_s.size - count, np.inf))
    by_due = np.flatnonzero(inside)[np.argsort(due_s[inside], kind="stable")]
    return _observed(
        begin_ns,
        answered_s[counts[:count]],
        quiet,
        latency_us[inside],
        # what was never answered was sent all the same, at a moment that is not known
        sent=int(within(sent_s, quiet).sum()) + unanswered,
        in_flight_s=_overlap_s(due_s[counts], ends_s[counts], quiet),
        unanswered_count=unanswered,
        late_sends=float((lag_us[counted] > LATE_US).mean()) if count else None,
        due_per_s=float(inside.sum()) / seconds_of(quiet),
        send_lag_p99_us=percentile(np.sort(lag_us[counted]), 0.99) if count else None,
        by_arrival_us=by_arrival[1][within(by_arrival[0], quiet)],
        all_by_arrival_us=None if quiet == (window.span_s,) else by_arrival[1],
        outside_gaps_us=_outside_gaps(due_s, latency_us, inside),
        course=course_of(latency_us[by_due], on_one_clock(due_s[by_due], quiet), seconds_of(quiet)),
        slices=_slices(due_s, answered_s, latency_us, window, refused_s),
        left_out_s=max(window.duration_s - seconds_of(quiet), 0.0),
    )


def _by_arrival(
    due_s: Values, latency_us: Values, refused_s: Values, window: Window
) -> tuple[Values, Values]:
    """The window's requests in the order they were due; refused ones have infinite latency."""
    latency_us = np.append(latency_us, np.full(refused_s.size, np.inf))
    due_s = np.append(due_s, refused_s)
    inside = within(due_s, (window.span_s,))
    order = np.argsort(due_s[inside], kind="stable")
    return due_s[inside][order], latency_us[inside][order]


def _outside_gaps(
    due_s: Values, latency_us: Values, inside: npt.NDArray[np.bool_]
) -> Values | None:
    """Latencies of those inside that no gap delayed, ascending; None without a gap, or too many.

    A gap delays whoever waits in it, and what queues up behind: up to the first request that is
    answered within twice the shortest latency. Where all inside are delayed, those before tell.
    """
    least_us, answered_s = float(latency_us.min()), due_s + latency_us / 1e6
    order = np.argsort(answered_s, kind="stable")
    ends_s = answered_s[order][1:]
    waited_s = ends_s - np.maximum(answered_s[order][:-1], due_s[order][1:])
    ends_s = ends_s[waited_s > max(GAP * least_us / 1e6, LEAST_GAP_S)]
    if not 0 < ends_s.size <= MOST_GAPS:
        return None
    spared = np.ones(due_s.size, dtype=bool)
    fast_s = np.append(np.sort(due_s[latency_us <= 2.0 * least_us]), np.inf)
    for end_s in ends_s:
        spared &= (answered_s < end_s) | (due_s >= fast_s[np.searchsorted(fast_s, end_s)])
    return np.sort(latency_us[spared & inside if (spared & inside).any() else spared])


def begun_ns(requests: AnsweredRequests, due_s: Values) -> int:
    """The start of the load on the wall clock: the latest at which nothing was sent too early."""
    return int(np.min(requests.sent_ns - due_s[: requests.sent_ns.size] * 1e9))


def _slices(
    due_s: Values,
    answered_s: Values,
    latency_us: Values,
    window: Window,
    refused_s: Values,
) -> tuple[Slice, ...]:
    """How a run went over time, in whole slices of ``window.slice_s``, if the window asks for any.

    ``latency_us`` is that of each request of ``due_s``, answered or not.
    """
    if window.slice_s is None:
        return ()
    # a sum of lengths may fall short of what it is a multiple of by the last bit
    count = int(window.total_s / window.slice_s + 1e-9)
    edges = window.slice_s * np.arange(count + 1)
    moments = (np.append(due_s, refused_s), answered_s, refused_s)
    due, answered, refused = (np.histogram(m, edges)[0] / window.slice_s for m in moments)
    slices = []
    for k, start in enumerate(edges[:-1]):
        of_slice = np.sort(latency_us[(due_s >= start) & (due_s < edges[k + 1])])
        p99 = percentile(of_slice, 0.99) if of_slice.size else None
        rates = (float(due[k]), float(answered[k]))
        slices.append(Slice(float(start), *rates, p99, float(refused[k])))
    return tuple(slices)


def observe_closed(
    requests: AnsweredRequests, window: Window, begin_ns: int | None = None
) -> Observed:
    """The window of a closed-loop run: the requests answered inside it."""
    begin_ns = int(requests.sent_ns[0]) if begin_ns is None else begin_ns
    sent_s, answered_s = (
        (moments - begin_ns) / 1e9 for moments in (requests.sent_ns, requests.answered_ns)
    )
    spans = (window.span_s,)
    return _observed(
        begin_ns,
        answered_s,
        spans,
        1e6 * (answered_s - sent_s)[within(answered_s, spans)],
        sent=int(within(sent_s, spans).sum()),
        in_flight_s=_overlap_s(sent_s, answered_s, spans),
    )


def within_bounds(ascending: Values, lost_count: int, bounds: Sequence[Slo]) -> bool | None:
    """Whether every bound was met, lost requests counted as late; None without a bound."""
    if not bounds:
        return None
    total = ascending.size + lost_count
    return all(
        ascending.searchsorted(bound.within_s * 1e6, side="right") >= math.ceil(bound.share * total)
        for bound in bounds
    )


def measurement_of(
    observed: Observed, load: LoadPoint, seed: int, batch_size: int = 1
) -> Measurement:
    """A measurement by the figures of a window, with nothing of streams and machines."""
    return Measurement.of_all(figures_of(observed, load, seed, batch_size))


def figures_of(
    observed: Observed,
    load: LoadPoint,
    seed: int,
    batch_size: int = 1,
    *,
    bounds: Sequence[Slo] = (),
    failed_count: int = 0,
    rejected_count: int = 0,
) -> Figures:
    """The figures of a window; what time stamps do not tell is left to the caller."""
    duration_s = seconds_of(observed.quiet)
    return Figures(
        load=load,
        seed=seed,
        duration_s=duration_s,
        completed_count=observed.answered_count,
        failed_count=failed_count,
        rejected_count=rejected_count,
        throughput_infer_per_s=observed.answered_count * batch_size / duration_s,
        **latency_figures(observed.latencies_us),
        sent_per_s=observed.sent_per_s,
        due_per_s=observed.due_per_s,
        late_sends=observed.late_sends,
        send_lag_p99_us=observed.send_lag_p99_us,
        within_bounds=within_bounds(observed.latencies_us, failed_count, bounds),
        batch_size=batch_size,
        unanswered_count=observed.unanswered_count,
        mean_in_flight=observed.mean_in_flight,
        slices=observed.slices,
        by_arrival_us=observed.by_arrival_us,
        all_by_arrival_us=observed.all_by_arrival_us,
        outside_gaps_us=observed.outside_gaps_us,
        course=observed.course,
        left_out_s=observed.left_out_s,
    )


def latency_figures(ascending: Values) -> dict[str, Any]:
    """Mean and percentiles, by their names in `Measurement`, with the latencies themselves."""
    percentiles = {f"{name}_latency_us": percentile(ascending, q) for name, q in SHARES.items()}
    return {"latencies_us": ascending, "avg_latency_us": float(ascending.mean()), **percentiles}


def _go_round(due_s: Values, count: int) -> Values:
    """At least ``count`` due times: after the last gap perf_analyzer starts over."""
    rounds = math.ceil(count / due_s.size)
    return np.concatenate([due_s + i * due_s[-1] for i in range(max(rounds, 1))])


def _overlap_s(begins_s: Values, ends_s: Values, spans: Sequence[Span]) -> float:
    """Total time requests spent in flight inside the spans."""
    return sum(
        float(np.clip(np.minimum(ends_s, high) - np.maximum(begins_s, low), 0.0, None).sum())
        for low, high in spans
    )


def _observed(
    begin_ns: int,
    answered_s: Values,
    spans: tuple[Span, ...],
    latencies_us: Values,
    *,
    sent: int,
    in_flight_s: float,
    **more: Any,
) -> Observed:
    if latencies_us.size == 0:
        raise LoadFailedError(
            "no request falls inside the measured window",
            "measure for longer, or at a higher rate",
        )
    seconds = seconds_of(spans)
    return Observed(
        start_ns=begin_ns + round(spans[0][0] * 1e9),
        end_ns=begin_ns + round(spans[-1][1] * 1e9),
        latencies_us=np.sort(latencies_us),
        answered_count=int(within(answered_s, spans).sum()),
        sent_per_s=sent / seconds,
        mean_in_flight=in_flight_s / seconds,
        quiet=spans,
        **more,
    )


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
    inside = np.zeros(moments_s.size, dtype=bool)
    for start, end in spans:
        inside |= (moments_s >= start) & (moments_s < end)
    return inside


def on_one_clock(moments_s: Values, spans: Sequence[Span]) -> Values:
    """Moments within the spans, on a clock that runs in these only, from 0."""
    starts, ends = np.array(spans).T
    before = np.concatenate([[0.0], np.cumsum(ends - starts)[:-1]])
    which = np.searchsorted(starts, moments_s, side="right") - 1
    return np.asarray(moments_s - starts[which] + before[which])
