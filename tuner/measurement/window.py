"""How long a measurement must be for a verdict on the percentiles that SLOs bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from tuner.measurement.measurement import LoadPoint
from tuner.spec.arrivals import BUSY_TIMES, BurstArrivals
from tuner.spec.metrics import RANKING, requests_needed
from tuner.spec.model import Spec
from tuner.spec.slo import Slo, hardest
from tuner.spec.workload import Workload

_MIN_TAIL_S = 0.25
#: The tail in latency bounds: an unanswered request of the window's end is certainly late.
TAIL_OVER_BOUND = 1.5
_MARGIN = 1.05  # a few requests are answered outside the window
#: Fewest requests in a window, even where no SLO bounds a percentile.
_FEWEST = 10
#: In units of the largest latency SLO. In such a window, a queue that grows by a twentieth of the
#: load uses up half of the SLO's bound; the warm-up before it lets the queue form.
WINDOW_OVER_BOUND, WARMUP_OVER_BOUND = 10.0, 2.0
#: In searches and rounds, both and the spec's window are shorter by this factor: the soak shows a
#: queue that they miss.
BRIEF = 0.5
#: A soak has enough requests for this many late ones at the percentile, and lasts this many times
#: the largest latency SLO; but at most this many times the length in the spec.
_SOAK_LATE, _SOAK_OVER_BOUND, SOAK_AT_MOST = 5, 20.0, 20.0
#: Requests of each stream in a window that only shows how long requests take.
INFORMING = 40
_SLACK_S = 20.0  # for a start on a busy machine, and for late answers


#: The bound that stalls are compared with where no SLO bounds a percentile.
NO_BOUND = Slo.parse("p99_latency <= 100ms")


class EarlyEnd(Enum):
    """When an open loop ends before its time, because a latency SLO is certainly missed."""

    NEVER = "never"
    WAITING = "more requests wait than may be late"
    LATE = "more requests are late than may be"  # tune's client only: others know who waits


@dataclass(frozen=True)
class Window:
    """How long a measurement is, and what may end it early.

    Attributes:
        duration_s: Length of the measured window.
        warmup_s: Time under load before the window; its requests do not count.
        deadline_s: Time after which the load generator is killed.
        tail_s: Time under load after the window, so that late answers still arrive. A request
            without an answer by then took at least this long: choose a tail above the latency
            SLO, so that an unanswered request never counts as one in time.
        slice_s: Length of each of `Measurement.slices`; None: no slices.
        bounds: Latency SLOs; see `Measurement.within_bounds`.
        ends_early: When an open loop ends early, once it has certainly missed one of the bounds.
        quiet_only: Leave stalls of the machine out (open loop only), see `tuner.load.quiet`.
    """

    duration_s: float
    warmup_s: float
    deadline_s: float
    tail_s: float = 0.5
    slice_s: float | None = None
    bounds: tuple[Slo, ...] = ()
    ends_early: EarlyEnd = EarlyEnd.WAITING
    quiet_only: bool = False

    def of(self, stream: str) -> Window:
        """The same window with the bounds of one stream only."""
        return replace(self, bounds=tuple(b for b in self.bounds if b.holds_for(stream)))

    @property
    def tightest(self) -> Slo:
        """The bound with the shortest latency; without bounds, 100 ms for the p99."""
        return min(self.bounds, key=lambda bound: bound.within_s, default=NO_BOUND)

    @property
    def longest_bound_s(self) -> float:
        """Time after which a request without an answer is late by every bound; 0 without one."""
        return max((bound.within_s for bound in self.bounds), default=0.0)

    @property
    def until_first(self) -> bool:
        """Whether latencies count until the first response, by one of the bounds."""
        return any(bound.until_first for bound in self.bounds)

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of the window, in seconds from the start of the load."""
        return self.warmup_s, self.warmup_s + self.duration_s

    @property
    def total_s(self) -> float:
        """Duration of the load: warm-up, window and tail."""
        return self.warmup_s + self.duration_s + self.tail_s


def requests_for(shares: Iterable[float], *, brief: bool = False) -> float:
    """The number of requests that a verdict on these percentiles (shares, 0..1) needs."""
    needed = partial(requests_needed, confidence=RANKING) if brief else requests_needed
    return _MARGIN * max(map(needed, shares), default=_FEWEST)


def lowest_rate(shares: Iterable[float], window_s: float, *, brief: bool = False) -> float:
    """The lowest rate at which a window of this length has enough requests for a verdict."""
    return requests_for(shares, brief=brief) / window_s


def window_for(
    shares: Iterable[float],
    rate_per_s: float | None,
    *,
    window_s: float,
    max_window_s: float,
    warmup_s: float,
    latency_bound_s: float = 0.0,
    open_loop: bool = True,
    brief: bool = False,
) -> Window:
    """The window for one level of load.

    Args:
        shares: Percentiles that the SLOs name, as shares (0.99 for p99).
        rate_per_s: Expected requests per second; None if unknown.
        window_s: Shortest window, from the spec.
        max_window_s: Longest window; a latency SLO may need a longer one.
        warmup_s: Shortest warm-up.
        latency_bound_s: The largest latency SLO. Warm-up and window are much longer, so that they
            show a growing queue, and the tail is longer too.
        open_loop: Whether a queue can grow at all.
        brief: For a search or a round, which needs only the fewest requests for a verdict.
    """
    wanted_s = requests_for(shares, brief=brief) / rate_per_s if rate_per_s else 0.0
    duration_s = min(max(window_s, wanted_s), max(max_window_s, window_s))
    if open_loop:
        share = BRIEF if brief else 1.0
        duration_s = max(duration_s, share * WINDOW_OVER_BOUND * latency_bound_s)
        warmup_s = max(warmup_s, share * WARMUP_OVER_BOUND * latency_bound_s)
    tail_s = max(_MIN_TAIL_S, TAIL_OVER_BOUND * latency_bound_s)
    return lengthen(Window(0.0, warmup_s, deadline_s=0.0, tail_s=tail_s), duration_s)


def lengthen(window: Window, duration_s: float) -> Window:
    """The same window, at least ``duration_s`` long."""
    if duration_s <= window.duration_s:
        return window
    longer = replace(window, duration_s=duration_s)
    return replace(longer, deadline_s=2.0 * longer.total_s + _SLACK_S)


def soak_for(
    window: Window, shares: Iterable[float], rate_per_s: float | None, soak_s: float, least_s: float
) -> Window:
    """The window of a soak: as long as the spec says, or as the statistics need.

    Args:
        window: The window of another measurement at this load; a soak is no shorter.
        shares: Percentiles that the SLOs name, as shares.
        rate_per_s: Expected requests per second; None if unknown.
        soak_s: Length in the spec; the soak may become `SOAK_AT_MOST` times as long.
        least_s: Length that the relaxation time of the latency calls for.
    """
    needed = max((requests_needed(share, _SOAK_LATE) for share in shares), default=0)
    wanted_s = needed / rate_per_s if rate_per_s else 0.0
    wanted_s = max(soak_s, wanted_s, _SOAK_OVER_BOUND * window.longest_bound_s, least_s)
    duration_s = min(wanted_s, SOAK_AT_MOST * soak_s)
    return replace(lengthen(window, duration_s), quiet_only=True)


def window_of(
    spec: Spec, load: LoadPoint, rate_per_s: float | None = None, *, brief: bool = False
) -> Window:
    """The window of one measurement.

    Args:
        rate_per_s: Expected requests per second of a closed loop.
        brief: For a search or a round: half as long, unless a percentile or an SLO needs more. A
            search only ranks configs, and the ratio of configs under the same arrivals hardly
            depends on the length.
    """
    workload = spec.workload
    tails = [s for s in spec.slos if s.metric.is_latency]
    bounds = bounds_of(tails)
    level = load.level if load.arrivals.open_loop else rate_per_s
    windows = [
        window_for(
            _shares_of(bounds, stream),
            rate,
            window_s=_shortest_s(workload, brief=brief),
            max_window_s=float(workload.max_window),
            warmup_s=float(workload.warmup),
            latency_bound_s=max((s.bound for s in tails), default=0.0) / 1e6,
            open_loop=load.arrivals.open_loop,
            brief=brief,
        )
        for stream, rate in spec.rates(level).items()
    ]
    return replace(_longest(windows), bounds=bounds)


def bounds_of(slos: Sequence[Slo]) -> tuple[Slo, ...]:
    """The SLOs on latency percentiles that can end a measurement early.

    Each request has one latency, to its first or to its last response. A stream may have bounds on
    both; only those on the response that the stream's hardest SLO is about are returned. All of
    them are judged afterwards.
    """
    bounds = []
    for slo in slos:
        same = hardest(other for other in slos if other.stream == slo.stream)
        if slo.metric.quantile is not None and same and slo.metric.until is same.metric.until:
            bounds.append(slo)
    return tuple(bounds)


def _shares_of(bounds: Iterable[Slo], stream: str) -> list[float]:
    return [bound.share for bound in bounds if bound.holds_for(stream)]


def _longest(windows: Iterable[Window]) -> Window:
    """The longest window: the stream with the lowest rate needs it for its percentile."""
    return max(windows, key=lambda window: window.duration_s)


def _shortest_s(workload: Workload, *, brief: bool) -> float:
    arrivals, window_s = workload.arrivals, float(workload.window)
    if brief:
        window_s *= BRIEF
    if isinstance(arrivals, BurstArrivals):
        return max(window_s, BUSY_TIMES * arrivals.cycle_s)
    return window_s


def informing_window(spec: Spec, load: LoadPoint) -> Window:
    """The window of a load that shows how long requests take, without a verdict on any SLO."""
    window = window_of(spec, load, brief=True)
    few_s = max(INFORMING / rate for rate in spec.rates(load.level).values() if rate)
    few_s = max(few_s, _shortest_s(spec.workload, brief=True))
    return replace(window, duration_s=min(window.duration_s, few_s), ends_early=EarlyEnd.NEVER)


def soak_of(
    spec: Spec, load: LoadPoint, rate_per_s: float | None = None, least_s: float = 0.0
) -> Window:
    """The window of a soak at this load; see `soak_for` and `window_of`."""
    window = window_of(spec, load, rate_per_s)
    level = load.level if load.arrivals.open_loop else rate_per_s
    soak_s = float(spec.confirm.soak)
    soak = _longest(
        soak_for(window, _shares_of(window.bounds, stream), rate, soak_s, least_s)
        for stream, rate in spec.rates(level).items()
    )
    return replace(soak, ends_early=EarlyEnd.LATE)
