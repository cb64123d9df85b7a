"""How long the windows behind a claim must be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.score.capacity import NEAR, saturated, steepness
from tuner.score.point import Point
from tuner.spec.slo import Slo
from tuner.spec.workload import Workload

#: Standard error of a window's capacity, as a share, that is good enough.
ERROR = 0.08
#: A claim's window is at most this many of the spec's windows: what is written is also soaked.
MOST_WINDOWS = 5.0


def most_claim_window_s(workload: Workload) -> float:
    """The longest window of a confirmation that is not the search's too."""
    return min(MOST_WINDOWS * float(workload.window), float(workload.max_window))


def claim_window_s(points: Sequence[Point], slos: Sequence[Slo]) -> float:
    """The window that puts a config's capacity within `ERROR`, as its search measured it.

    Requests are late together, so a window holds as many independent ones as it is long in
    relaxation times (over two). From n of them, with an exponential tail, the quantile q of the
    latency has a relative standard error of sqrt(q / (1 - q) / n) / -ln(1 - q) (asymptotic variance
    of a sample quantile, q (1 - q) / (n f^2)). The error of the capacity is smaller by the power of
    the load with which the latency rises. Short windows also overestimate it, by about as much:
    most of them hold no busy period.

    Args:
        points: Measurements of the config, at several loads.
        slos: What it is held to.

    Returns:
        Seconds; 0 where the search does not tell: no window need be longer then.
    """
    quantile = max((s.metric.quantile or 0.0 for s in slos), default=0.0)
    slope = steepness(_by_seed(points))
    relaxation_s = max((_relaxation_s(p) for p in points), default=0.0)
    if quantile <= 0.0 or slope is None:
        return 0.0
    one = math.sqrt(quantile / (1.0 - quantile)) / -math.log1p(-quantile)
    independent = (one / (ERROR * slope)) ** 2
    return 2.0 * relaxation_s * independent


def _by_seed(points: Sequence[Point]) -> list[list[Point]]:
    """Those under the same arrivals: what differs between arrivals is no slope."""
    seeds = dict.fromkeys(p.measurement.seed for p in points)
    return [[p for p in points if p.measurement.seed == seed] for seed in seeds]


def _relaxation_s(point: Point) -> float:
    """The relaxation time at a load near the bound that the server kept up with; else 0.

    Short windows show too short a memory, so the longest that was seen is taken.
    """
    course = point.measurement.course
    if course is None or saturated(point) or point.slo_utilisation is None:
        return 0.0
    low, high = NEAR
    return course.relaxation_s if low <= point.slo_utilisation <= high else 0.0
