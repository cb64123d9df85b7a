"""From time stamps to latencies: what happened inside the measured window.

Open loop: a latency counts from the moment its request was *due*, whether or not the client
sent it then, and requests that were never answered are not forgotten. Otherwise an overloaded
server would look best when it is slowest (coordinated omission).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError
from tuner.load.latency.quiet import Span, on_one_clock, quiet_spans, seconds_of, within
from tuner.load.perf_analyzer.export import Requests
from tuner.measurement.measurement import Course, LatencySource, LoadPoint, Measurement, Slice
from tuner.measurement.window import LatencyBound, Window

Values = npt.NDArray[np.float64]

#: Batches of equal time whose means show a trend; fewer requests than `_LEAST` show none.
BATCHES, _LEAST = 20, 60
#: Sokal's factor: correlations are added up over this many correlation times.
_SOKAL = 5.0

#: Percentiles of a measurement, as shares.
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_ENOUGH_SENDS = 100
LATE_US = 1000.0  # perf_analyzer calls a send late by the same measure


@dataclass(frozen=True)
class Observed:
    """The window's figures; see `tuner.measurement.measurement.Measurement` for what they mean.

    ``start_ns`` and ``end_ns`` are the window's bounds on the wall clock, ``quiet`` is what of it
    counts, in seconds from the start of the load, and ``left_out_s`` how long the rest is.
    """

    start_ns: int
    end_ns: int
    latencies_us: npt.NDArray[np.float64]
    answered_count: int
    unanswered_count: int
    sent_per_s: float
    late_sends: float | None
    mean_in_flight: float
    send_lag_p99_us: float | None = None
    due_per_s: float | None = None
    slices: tuple[Slice, ...] = ()
    by_arrival_us: npt.NDArray[np.float64] | None = None
    all_by_arrival_us: npt.NDArray[np.float64] | None = None
    course: Course | None = None
    quiet: tuple[Span, ...] = ()
    left_out_s: float = 0.0

    @property
    def begin_ns(self) -> int:
        """The start of the load on the wall clock."""
        return self.start_ns - round(self.quiet[0][0] * 1e9)


def observe_open(
    requests: Requests,
    due_s: npt.NDArray[np.float64],
    window: Window,
    refused_s: npt.NDArray[np.float64] | None = None,
    spells_ns: Iterable[tuple[int, int]] = (),
    begin_ns: int | None = None,
) -> Observed:
    """The window of an open-loop run.

    The k-th request sent is the one due k-th: requests are sent in order, and those missing
    from the export are the last, still in flight when the run ended. (Where answers overtake
    each other this takes a request to be due earlier than it was, never later.)

    Args:
        refused_s: When the refused requests were due, which are in neither of these.
        spells_ns: Stalls of the machine, on the wall clock: left out with the requests they
            delayed, see `tuner.load.latency.quiet`.
        begin_ns: The start of the load on the wall clock; None: as these requests tell it.
    """
    count = requests.sent_ns.size
    due_s = _go_round(due_s, count)
    begin_ns = begun_ns(requests, due_s) if begin_ns is None else begin_ns
    end_s = (requests.end_ns - begin_ns) / 1e9
    answered_s = (requests.answered_ns - begin_ns) / 1e9
    latency_us = 1e6 * np.append(answered_s - due_s[:count], end_s - due_s[count:])
    slowest = float(latency_us[:count].max(initial=0.0))
    latency_us[count:] = np.maximum(latency_us[count:], slowest)
    by_arrival = _by_arrival(due_s, latency_us, refused_s, window)
    spells = [((a - begin_ns) / 1e9, (b - begin_ns) / 1e9) for a, b in spells_ns]
    quiet = quiet_spans(window.span_s, *by_arrival, spells)
    inside = within(due_s, quiet)
    unanswered = int(inside[count:].sum())
    sent_s = (requests.sent_ns - begin_ns) / 1e9
    lag_us = 1e6 * (sent_s - due_s[:count])
    # under an overload few requests due inside are answered: then all of them judge the sends
    told = inside[:count] if inside[:count].sum() >= _ENOUGH_SENDS else slice(None)
    counts = inside | ~within(due_s, (window.span_s,))
    ends_s = np.append(answered_s, np.full(due_s.size - count, np.inf))
    observed = _observed(
        begin_ns,
        answered_s[counts[:count]],
        quiet,
        latency_us[inside],
        unanswered=unanswered,
        # what was never answered was sent all the same, at a moment that is not known
        sent=int(within(sent_s, quiet).sum()) + unanswered,
        late_sends=float((lag_us[told] > LATE_US).mean()) if count else None,
        in_flight_s=_overlap_s(due_s[counts], ends_s[counts], quiet),
    )
    return replace(
        observed,
        due_per_s=float(inside.sum()) / seconds_of(quiet),
        send_lag_p99_us=percentile(np.sort(lag_us[told]), 0.99) if count else None,
        by_arrival_us=by_arrival[1][within(by_arrival[0], quiet)],
        all_by_arrival_us=None if quiet == (window.span_s,) else by_arrival[1],
        course=_course(due_s[inside], latency_us[inside], quiet),
        slices=slices_of(due_s, answered_s, latency_us, window, refused_s),
        left_out_s=max(window.duration_s - seconds_of(quiet), 0.0),
    )


def _course(
    due_s: npt.NDArray[np.float64], latency_us: npt.NDArray[np.float64], quiet: Sequence[Span]
) -> Course | None:
    order = np.argsort(due_s, kind="stable")
    return course_of(latency_us[order], on_one_clock(due_s[order], quiet), seconds_of(quiet))


def _by_arrival(
    due_s: npt.NDArray[np.float64],
    latency_us: npt.NDArray[np.float64],
    refused_s: npt.NDArray[np.float64] | None,
    window: Window,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The window's requests in the order they were due; refused ones have infinite latency."""
    refused_s = np.array([]) if refused_s is None else refused_s
    latency_us = np.append(latency_us, np.full(refused_s.size, np.inf))
    due_s = np.append(due_s, refused_s)
    inside = within(due_s, (window.span_s,))
    order = np.argsort(due_s[inside], kind="stable")
    return due_s[inside][order], latency_us[inside][order]


def begun_ns(requests: Requests, due_s: npt.NDArray[np.float64]) -> int:
    """The start of the load on the wall clock: the latest at which nothing was sent too early."""
    return int(np.min(requests.sent_ns - due_s[: requests.sent_ns.size] * 1e9))


def slices_of(
    due_s: npt.NDArray[np.float64],
    answered_s: npt.NDArray[np.float64],
    latency_us: npt.NDArray[np.float64],
    window: Window,
    refused_s: npt.NDArray[np.float64] | None = None,
) -> tuple[Slice, ...]:
    """How a run went over time, in whole slices of ``window.slice_s`` from the start of the load.

    Empty where the window asks for no slices.

    Args:
        latency_us: Of each request of ``due_s``; what was not answered counts as slower than
            all others.
    """
    if window.slice_s is None:
        return ()
    # a sum of lengths may fall short of what it is a multiple of by the last bit
    count = int(window.total_s / window.slice_s + 1e-9)
    edges = window.slice_s * np.arange(count + 1)
    refused_s = np.array([]) if refused_s is None else refused_s
    moments = (np.append(due_s, refused_s), answered_s, refused_s)
    due, answered, refused = (np.histogram(m, edges)[0] / window.slice_s for m in moments)
    slices = []
    for k, start in enumerate(edges[:-1]):
        own = np.sort(latency_us[(due_s >= start) & (due_s < edges[k + 1])])
        p99 = percentile(own, 0.99) if own.size else None
        rates = (float(due[k]), float(answered[k]))
        slices.append(Slice(float(start), *rates, p99, float(refused[k])))
    return tuple(slices)


def observe_closed(requests: Requests, window: Window, begin_ns: int | None = None) -> Observed:
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
        unanswered=0,
        sent=int(within(sent_s, spans).sum()),
        late_sends=None,
        in_flight_s=_overlap_s(sent_s, answered_s, spans),
    )


def percentile(ascending: npt.NDArray[np.float64], share: float) -> float:
    """Nearest-rank percentile, as perf_analyzer computes it: an observed value, no blend."""
    return float(ascending[max(math.ceil(share * ascending.size) - 1, 0)])


def within_bounds(
    ascending: npt.NDArray[np.float64], lost_count: int, bounds: Sequence[LatencyBound]
) -> bool | None:
    """Whether every bound was met; None without one.

    Args:
        lost_count: Requests without a latency, since they were refused or failed: slower than all.
    """
    if not bounds:
        return None
    total = ascending.size + lost_count
    return all(
        ascending.searchsorted(bound.within_s * 1e6, side="right") >= math.ceil(bound.share * total)
        for bound in bounds
    )


def measurement_of(
    observed: Observed,
    load: LoadPoint,
    seed: int,
    batch_size: int = 1,
    *,
    bounds: Sequence[LatencyBound] = (),
    failed_count: int = 0,
    rejected_count: int = 0,
) -> Measurement:
    """The figures of a window; what time stamps do not tell is left to the caller."""
    duration_s = seconds_of(observed.quiet)
    return Measurement(
        load=load,
        seed=seed,
        duration_s=duration_s,
        completed_count=observed.answered_count,
        failed_count=failed_count,
        rejected_count=rejected_count,
        throughput_infer_per_s=observed.answered_count * batch_size / duration_s,
        **latency_figures(observed.latencies_us),
        source=LatencySource.REQUESTS,
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
        course=observed.course,
        left_out_s=observed.left_out_s,
    )


def latency_figures(ascending: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Mean and percentiles, by their names in `Measurement`, with the latencies themselves."""
    percentiles = {f"{name}_latency_us": percentile(ascending, q) for name, q in SHARES.items()}
    return {"latencies_us": ascending, "avg_latency_us": float(ascending.mean()), **percentiles}


def _go_round(due_s: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """At least ``count`` due times: after the last gap perf_analyzer starts over."""
    rounds = math.ceil(count / due_s.size)
    return np.concatenate([due_s + i * due_s[-1] for i in range(max(rounds, 1))])


def _overlap_s(
    begins_s: npt.NDArray[np.float64], ends_s: npt.NDArray[np.float64], spans: Sequence[Span]
) -> float:
    """Total time requests spent in flight inside the spans."""
    return sum(
        float(np.clip(np.minimum(ends_s, high) - np.maximum(begins_s, low), 0.0, None).sum())
        for low, high in spans
    )


def _observed(
    begin_ns: int,
    answered_s: npt.NDArray[np.float64],
    spans: tuple[Span, ...],
    latencies_us: npt.NDArray[np.float64],
    *,
    unanswered: int,
    sent: int,
    late_sends: float | None,
    in_flight_s: float,
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
        unanswered_count=unanswered,
        sent_per_s=sent / seconds,
        late_sends=late_sends,
        mean_in_flight=in_flight_s / seconds,
        quiet=spans,
    )


def course_of(latencies_us: Values, due_s: Values, duration_s: float) -> Course | None:
    """How latency developed over a window; None where there are too few requests."""
    if latencies_us.size < _LEAST:
        return None
    growth, error = _trend(latencies_us, due_s, duration_s)
    requests = correlated_requests(latencies_us)
    return Course(growth, error, 0.5 * requests * duration_s / latencies_us.size)


def correlated_requests(values: Values) -> float:
    """The correlation time: how many neighbours tell as much as one independent request.

    At least 1.

    The sum of all autocorrelations, 1 + 2 (r1 + r2 + ...), up to the first lag of at least five
    such times. Source: Sokal, "Monte Carlo methods in statistical mechanics" (1997), section 3.
    A window shorter than about ten correlation times gives too small a value.
    """
    centred = values - values.mean()
    size = 1 << (2 * values.size - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(power, size)[: values.size]
    if covariance[0] <= 0.0:
        return 1.0
    times = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
    enough = np.nonzero(np.arange(values.size) >= _SOKAL * times)[0]
    return max(float(times[enough[0] if enough.size else -1]), 1.0)


def _trend(latencies_us: Values, due_s: Values, duration_s: float) -> tuple[float, float]:
    """Growth over the window as a share of the mean latency, and its standard error.

    A line through the means of batches. Neighbouring batches are alike, which makes the error
    larger by the correlation of neighbours, itself corrected for being estimated too small from so
    few (Marriott and Pope 1954: by about (1 + 3 r) / n, here at its most for moderate r).
    """
    batch = np.minimum((due_s / duration_s * BATCHES).astype(int), BATCHES - 1)
    counts = np.bincount(batch, minlength=BATCHES)
    means = np.bincount(batch, latencies_us, minlength=BATCHES)[counts > 0] / counts[counts > 0]
    x = np.arange(means.size) - (means.size - 1) / 2
    spread = float(x @ x)
    slope = float(x @ means) / spread
    rest = means - means.mean() - slope * x
    squares = float(rest @ rest)
    if squares <= 0.0 or means.size < BATCHES // 2:
        return 0.0, 0.0
    alike = max(float(rest[1:] @ rest[:-1]) / squares, 0.0)
    alike = min(alike + 3.0 / means.size, 0.95)
    error = np.sqrt(squares / (means.size - 2) / spread * (1.0 + alike) / (1.0 - alike))
    whole = means.size / float(latencies_us.mean())
    return slope * whole, float(error) * whole
