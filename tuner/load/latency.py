"""Latencies and rates in the measured window, from time stamps.

Open loop: a latency counts from the moment its request was *due*, even if the client sent it later,
and requests without an answer still count. Otherwise an overloaded server would look best when it
is slowest (coordinated omission).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError
from tuner.load.course import course_of
from tuner.load.quiet import Span, Values, on_one_clock, quiet_spans, seconds_of, within
from tuner.measurement.measurement import Course, Figures, LoadPoint, Slice
from tuner.measurement.responses import percentile
from tuner.measurement.window import Window
from tuner.spec.slo import Slo

_NONE: Values = np.array([])

#: Percentiles of a measurement, as shares.
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_ENOUGH_SENDS = 100
LATE_US = 1000.0  # perf_analyzer's limit for a late send
#: A gap is a time with waiting requests but without answers, at least this many times the shortest
#: latency and this many seconds long. A server does not work in so few gaps as the last number.
GAP, LEAST_GAP_S, MOST_GAPS = 5.0, 0.05, 3


@dataclass(frozen=True)
class AnsweredRequests:
    """Every answered request of a run, in the order of sending.

    Attributes:
        sent_ns: When each request was sent.
        answered_ns: When its last response came.
        end_ns: End of the run; later answers are unknown.
    """

    sent_ns: npt.NDArray[np.int64]
    answered_ns: npt.NDArray[np.int64]
    end_ns: int


@dataclass(frozen=True)
class Observed:
    """Figures of the window; `tuner.measurement.measurement.Figures` explains them.

    Attributes:
        start_ns: Start of the window on the wall clock.
        end_ns: End of the window on the wall clock.
        quiet: Parts of the window that count, in seconds from the start of the load.
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


#: What figures take over from a window; `latency_figures` adds the latencies.
_SAME = {f.name for f in fields(Observed)} & {f.name for f in fields(Figures)} - {"latencies_us"}


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

    The k-th request sent is taken for the k-th request due: requests are sent in order, and those
    missing from the export are the last, still in flight when the run ended. (If answers overtake
    each other, a request is taken to be due earlier than it was, never later.)

    Args:
        due_s: When all requests but the refused ones were due, ascending.
        refused_s: When the refused requests were due; these are in neither of the above.
        spells_ns: Stalls of the machine, on the wall clock; they are left out together with the
            requests they delayed.
        begin_ns: Start of the load on the wall clock; None: derived from these requests.
        quiet: Parts of the window that count, if already known from a larger set of requests.
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
    # in an overload few requests due inside are answered: then all requests show how late sends are
    counted = inside[:count] if inside[:count].sum() >= _ENOUGH_SENDS else slice(None)
    counts = inside | ~within(due_s, (window.span_s,))
    ends_s = np.append(answered_s, np.full(due_s.size - count, np.inf))
    by_due = np.flatnonzero(inside)[np.argsort(due_s[inside], kind="stable")]
    return _observed(
        begin_ns,
        answered_s[counts[:count]],
        quiet,
        latency_us[inside],
        # a request without an answer was sent too, at an unknown moment
        sent=int(within(sent_s, quiet).sum()) + unanswered,
        in_flight_s=_overlap_s(due_s[counts], ends_s[counts], quiet),
        unanswered_count=unanswered,
        due_per_s=float(inside.sum()) / seconds_of(quiet),
        **(lag_figures(lag_us[counted]) if count else {}),
        by_arrival_us=by_arrival[1][within(by_arrival[0], quiet)],
        all_by_arrival_us=None if quiet == (window.span_s,) else by_arrival[1],
        outside_gaps_us=_outside_gaps(due_s, latency_us, inside),
        course=course_of(latency_us[by_due], on_one_clock(due_s[by_due], quiet), seconds_of(quiet)),
        slices=_slices(due_s, answered_s, latency_us, window, refused_s),
        left_out_s=max(window.duration_s - seconds_of(quiet), 0.0),
    )


def lag_figures(lag_us: Values) -> dict[str, Any]:
    """How late requests were sent after they were due, by the names in `Figures`."""
    return {
        "late_sends": float((lag_us > LATE_US).mean()),
        "send_lag_p99_us": percentile(np.sort(lag_us), 0.99),
    }


def _by_arrival(
    due_s: Values, latency_us: Values, refused_s: Values, window: Window
) -> tuple[Values, Values]:
    """Latencies of the window in the order of due times; those of refused requests are infinite."""
    latency_us = np.append(latency_us, np.full(refused_s.size, np.inf))
    due_s = np.append(due_s, refused_s)
    inside = within(due_s, (window.span_s,))
    order = np.argsort(due_s[inside], kind="stable")
    return due_s[inside][order], latency_us[inside][order]


def _outside_gaps(
    due_s: Values, latency_us: Values, inside: npt.NDArray[np.bool_]
) -> Values | None:
    """Latencies inside that no gap delayed, ascending; None without a gap, or with too many.

    A gap delays the requests that wait in it and those that queue behind them, up to the first
    request within twice the shortest latency. If gaps delayed all requests inside, the requests
    before the window count.
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
    """Start of the load on the wall clock: the latest one with which no request was sent early."""
    return int(np.min(requests.sent_ns - due_s[: requests.sent_ns.size] * 1e9))


def _slices(
    due_s: Values,
    answered_s: Values,
    latency_us: Values,
    window: Window,
    refused_s: Values,
) -> tuple[Slice, ...]:
    """Figures over time, in complete slices of ``window.slice_s``; empty without a slice length.

    ``latency_us``: latency of each request in ``due_s``, answered or not.
    """
    if window.slice_s is None:
        return ()
    # a sum of lengths may be below its exact multiple by rounding
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
    """The window of a closed-loop run: the requests answered inside the window."""
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
    """Whether every bound is met, with lost requests counted as late; None without a bound."""
    if not bounds:
        return None
    total = ascending.size + lost_count
    return all(
        ascending.searchsorted(bound.within_s * 1e6, side="right") >= math.ceil(bound.share * total)
        for bound in bounds
    )


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
    """The figures of a window; the caller adds what time stamps do not show."""
    duration_s = seconds_of(observed.quiet)
    return Figures(
        load=load,
        seed=seed,
        duration_s=duration_s,
        completed_count=observed.answered_count,
        failed_count=failed_count,
        rejected_count=rejected_count,
        throughput_infer_per_s=observed.answered_count * batch_size / duration_s,
        within_bounds=within_bounds(observed.latencies_us, failed_count, bounds),
        batch_size=batch_size,
        **{name: getattr(observed, name) for name in _SAME},
        **latency_figures(observed.latencies_us),
    )


def latency_figures(ascending: Values) -> dict[str, Any]:
    """Mean and percentiles by their names in `Figures`, and the latencies themselves."""
    percentiles = {f"{name}_latency_us": percentile(ascending, q) for name, q in SHARES.items()}
    return {"latencies_us": ascending, "avg_latency_us": float(ascending.mean()), **percentiles}


def _go_round(due_s: Values, count: int) -> Values:
    """At least ``count`` due times: after the last gap, perf_analyzer starts over."""
    rounds = math.ceil(count / due_s.size)
    return np.concatenate([due_s + i * due_s[-1] for i in range(max(rounds, 1))])


def _overlap_s(begins_s: Values, ends_s: Values, spans: Sequence[Span]) -> float:
    """Total time that requests spent in flight inside the spans."""
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
