"""How long a measurement must be for the percentile it is to prove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from tuner.measurement.measurement import LoadPoint
from tuner.spec.metrics import requests_needed
from tuner.spec.model import Spec
from tuner.spec.slo import Slo, hardest
from tuner.spec.units import Seconds
from tuner.spec.workload import BUSY_TIMES, BurstArrivals, Workload

_MIN_TAIL_S = 0.25
_TAIL_OVER_BOUND = 1.5
_MARGIN = 1.05  # a few requests are answered outside the window
#: A percentile from too few requests for this confidence (299 for p99) gets no verdict. A search,
#: which only ranks configs, is content with so many; what a claim rests on has 459.
CONFIDENCE = 0.95
#: A window is to hold this many requests even where no percentile is bounded.
_FEWEST = 10
#: In units of the largest latency SLO: a window in which a queue that grows by a twentieth of the
#: load takes up half of what the SLO allows, and load before it for the queue to form.
WINDOW_OVER_BOUND, WARMUP_OVER_BOUND = 10.0, 2.0
#: In a search, both are this much shorter: what it does not see of a growing queue, the rounds do.
BRIEF = 0.5
#: A soak holds enough requests for this many late ones at the percentile, and lasts this many times
#: the largest latency SLO; but it is at most this many times as long as the spec says.
_SOAK_LATE, _SOAK_OVER_BOUND, SOAK_AT_MOST = 5, 20.0, 20.0
#: So many requests of each stream show what they take.
INFORMING = 40
_SLACK_S = 20.0  # for a start on a busy machine, and for answers that are behind


#: What stalls are held to where no SLO bounds a percentile.
NO_BOUND = Slo.parse("p99_latency <= 100ms")


class EarlyEnd(Enum):
    """When an open loop ends before its time, since it has certainly missed a latency SLO."""

    NEVER = "never"
    WAITING = "more requests wait than may be late"
    LATE = "more requests are late than may be"  # of our own client; others know who waits


@dataclass(frozen=True)
class Window:
    """How long to measure.

    Attributes:
        duration_s: Length of the measured window.
        warmup_s: Load before it that is not counted.
        deadline_s: The whole run is killed after this long.
        tail_s: Load kept up after the window, so that late answers are still seen. A request
            that is not answered by then took at least this long: choose it above the latency
            SLO, and an unanswered request can never pass for one in time.
        slice_s: Length of the stretches of `Measurement.slices`; None for none.
        bounds: Latency SLOs; see `Measurement.within_bounds`.
        ends_early: When an open loop ends that has certainly missed one of them.
        quiet_only: Stalls of the machine are left out (open loop only), see
            `tuner.load.latency`.
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
        """The same window with the bounds of one stream."""
        return replace(self, bounds=tuple(b for b in self.bounds if b.holds_for(stream)))

    @property
    def tightest(self) -> Slo:
        """The lowest of its bounds; without one, 100 ms for the p99."""
        return min(self.bounds, key=lambda bound: bound.within_s, default=NO_BOUND)

    @property
    def until_first(self) -> bool:
        """Whether a first response counts, by one of its bounds."""
        return any(bound.until_first for bound in self.bounds)

    @property
    def span_s(self) -> tuple[float, float]:
        """What is measured, from and to, from the start of the load."""
        return self.warmup_s, self.warmup_s + self.duration_s

    @property
    def total_s(self) -> float:
        """How long load is on the model."""
        return self.warmup_s + self.duration_s + self.tail_s


def requests_for(shares: Iterable[float], *, brief: bool = False) -> float:
    """How many requests a window is to hold for a verdict on these percentiles."""
    needed = partial(requests_needed, confidence=CONFIDENCE) if brief else requests_needed
    return _MARGIN * max(map(needed, shares), default=_FEWEST)


def lowest_rate(shares: Iterable[float], max_window_s: float) -> float:
    """The fewest requests per second that fill the longest window; below there is no verdict."""
    return requests_for(shares) / max_window_s


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
    """The window for one load point.

    Args:
        shares: Percentiles the SLOs name, as shares (0.99 for p99).
        rate_per_s: Requests per second to expect; None when it is not known.
        window_s: Shortest window, from the spec.
        max_window_s: Longest, apart from what the latency SLO needs.
        warmup_s: Least load before the window.
        latency_bound_s: The largest latency SLO: warm-up and window are much longer, so that a
            queue that only grows is seen, and load goes on for longer after the window.
        open_loop: Whether a queue can grow at all.
        brief: It is for a search, in which only the fewest requests for a verdict are needed.
    """
    wanted_s = requests_for(shares, brief=brief) / rate_per_s if rate_per_s else 0.0
    duration_s = min(max(window_s, wanted_s), max(max_window_s, window_s))
    if open_loop:
        share = BRIEF if brief else 1.0
        duration_s = max(duration_s, share * WINDOW_OVER_BOUND * latency_bound_s)
        warmup_s = max(warmup_s, share * WARMUP_OVER_BOUND * latency_bound_s)
    tail_s = max(_MIN_TAIL_S, _TAIL_OVER_BOUND * latency_bound_s)
    return lengthen(Window(0.0, warmup_s, deadline_s=0.0, tail_s=tail_s), duration_s)


def lengthen(window: Window, duration_s: float) -> Window:
    """The same window, of this length at least."""
    if duration_s <= window.duration_s:
        return window
    longer = replace(window, duration_s=duration_s)
    return replace(longer, deadline_s=2.0 * longer.total_s + _SLACK_S)


def soak_for(
    window: Window, shares: Iterable[float], rate_per_s: float | None, soak_s: float, least_s: float
) -> Window:
    """The window of a soak: as long as the spec says, or as the statistics need.

    Args:
        window: Of any other measurement at this load; a soak is no shorter.
        shares: Percentiles the SLOs name, as shares.
        rate_per_s: Requests per second to expect; None when it is not known.
        soak_s: From the spec. It may become `SOAK_AT_MOST` times as long.
        least_s: What is known to be needed, by how long the latency remembers.
    """
    needed = max((requests_needed(share, _SOAK_LATE) for share in shares), default=0)
    wanted_s = needed / rate_per_s if rate_per_s else 0.0
    bound_s = max((bound.within_s for bound in window.bounds), default=0.0)
    wanted_s = max(soak_s, wanted_s, _SOAK_OVER_BOUND * bound_s, least_s)
    duration_s = min(wanted_s, SOAK_AT_MOST * soak_s)
    return replace(lengthen(window, duration_s), quiet_only=True)


def window_of(
    spec: Spec, load: LoadPoint, rate_per_s: float | None = None, *, brief: bool = False
) -> Window:
    """How long one measurement is; ``rate_per_s``: requests to expect of a closed loop.

    ``brief``: of a search.
    """
    workload = spec.workload
    tails = [s for s in spec.slos if s.metric.is_latency]
    bounds = bounds_of(tails)
    level = load.level if load.arrivals.open_loop else rate_per_s
    windows = [
        window_for(
            _shares_of(bounds, stream),
            rate,
            window_s=_shortest_s(workload),
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
    """The SLOs on percentiles of the latency that a measurement is made for.

    Each request has one such latency: of a stream's bounds on the first response and on the last,
    those are left out that are about the other one than its hardest. They are judged all the same.
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
    """What the rarest stream needs for its percentile."""
    return max(windows, key=lambda window: window.duration_s)


def _shortest_s(workload: Workload) -> float:
    arrivals, window_s = workload.arrivals, float(workload.window)
    if isinstance(arrivals, BurstArrivals):
        return max(window_s, BUSY_TIMES * arrivals.cycle_s)
    return window_s


def search_window(spec: Spec, load: LoadPoint, rate_per_s: float | None = None) -> Window:
    """That of a search, to which a miss is a miss: a round reads from one by how much."""
    window = window_of(spec, load, rate_per_s, brief=True)
    return replace(window, ends_early=EarlyEnd.LATE)


def informing_window(spec: Spec, load: LoadPoint) -> Window:
    """The window of a load that shows what requests take, and no verdict on an SLO."""
    window = window_of(spec, load, brief=True)
    few_s = max(INFORMING / rate for rate in spec.rates(load.level).values() if rate)
    few_s = max(few_s, _shortest_s(spec.workload))
    return replace(window, duration_s=min(window.duration_s, few_s), ends_early=EarlyEnd.NEVER)


def round_window(spec: Spec, load: LoadPoint, rate_per_s: float | None = None) -> Window:
    """That of a round: half as long as the search's, unless percentile or SLO need more.

    A ratio of configs under the same arrivals hardly depends on it; more rounds help instead.
    """
    half = {"window": Seconds(float(spec.workload.window) / 2.0)}
    workload = spec.workload.model_copy(update=half)
    shorter = spec.model_copy(update={"workload": workload})
    return window_of(shorter, load, rate_per_s, brief=True)


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
