"""Arrival times of requests, drawn from seeds, and their file for ``--request-intervals``.

perf_analyzer's own Poisson arrivals have no seed, so schedules are made here. Every schedule has
*exactly* the expected number of requests in each span of a run (warm-up, window, tail): the count
of a Poisson process over 3 s at 200/s would itself vary by 4%, which is more than the differences
of interest. Given the count, arrival times of a Poisson process are independent and uniform, so
nothing else changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, SpecError
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.regular import read_limited
from tuner.spec.arrivals import ArrivalsSpec, BurstArrivals, TraceArrivals

#: Rates before, during and after the measured window of stepping arrivals, divided by the level.
CALM, OVERLOAD = 0.8, 1.2
STEPS = (CALM, OVERLOAD, CALM)
#: Arrivals are also drawn for this long after the load: perf_analyzer starts over after the last
#: arrival, which must not happen, and the same times need the same draw.
SLACK_S = 2.0

#: Arrival times in seconds from the start of the load, ascending.
Times = npt.NDArray[np.float64]

#: Draws this many arrival times between a start and an end, in any order.
_Draw = Callable[[float, float, int], Times]

#: Largest file with requests or times; all of it is read at once.
MOST_FILE_BYTES = 1 << 30
#: Longest time that recorded requests may cover: longer times have another unit.
MOST_S = 31 * 86_400.0
_LIKELY_S = 60.0  # a shorter recording suggests that its unit is another one
#: Units of time in files, in seconds, the largest first.
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

_ASSUMED_LATENCY_S = 0.005  # closed loops: for an estimate of the number of requests


@dataclass(frozen=True)
class BurstShape:
    """How bursty arrivals differ from Poisson arrivals.

    Attributes:
        ratio: Busy rate divided by the calm rate.
        share: Share of the time in busy periods, 0..1.
        mean_burst_s: Mean length of a busy period; lengths are exponential.
    """

    ratio: float = 5.0
    share: float = 0.2
    mean_burst_s: float = 0.2


#: What some arrivals have beside a rate: a trace's gaps in microseconds, or the shape of bursts.
Shape = Times | BurstShape


def arrivals_of(
    load: LoadPoint, spans_s: Sequence[float], seed: int, shape: object = None
) -> Times:
    """The arrivals of an open-loop load.

    Args:
        load: The level and kind of load.
        spans_s: Lengths of consecutive spans of the run; the rate holds in each of them.
        seed: Seed of the draw.
        shape: A `Shape`, for arrivals that have one.

    Raises:
        LoadFailedError: This kind of load has no arrival times of its own.
    """
    match load.arrivals:
        case Arrivals.POISSON:
            return poisson(load.level, spans_s, seed)
        case Arrivals.CONSTANT:
            return constant(load.level, spans_s, seed)
        case Arrivals.STEP:
            return steps(load.level, spans_s, seed)
        case Arrivals.BURSTS if isinstance(shape, BurstShape):
            return bursts(load.level, spans_s, seed, shape)
        case Arrivals.TRACE if isinstance(shape, np.ndarray):
            return trace(shape, load.level, spans_s, seed)
    raise LoadFailedError(f"there are no arrival times for {load.arrivals.value} arrivals")


def poisson(rate_per_s: float, spans_s: Sequence[float], seed: int) -> Times:
    """A Poisson process of constant rate.

    Runs with the same seed have the same gaps, up to a factor: levels and configs are compared
    under the same fluctuations (common random numbers).
    """
    generators = iter(np.random.default_rng(seed).spawn(len(spans_s)))

    def arrivals(start: float, end: float, count: int) -> Times:
        # Partial sums of exponential gaps over their total: uniform times in ascending order.
        sums = np.cumsum(next(generators).exponential(size=count + 1))
        times: Times = start + (end - start) * sums[:-1] / sums[-1]
        return times

    return _fill(rate_per_s, spans_s, arrivals)


def constant(rate_per_s: float, spans_s: Sequence[float], seed: int) -> Times:
    """Equal gaps; the seed says when the first request comes, within one gap."""
    total_s, first = sum(spans_s), float(np.random.default_rng(seed).random())
    times: Times = (first + np.arange(math.ceil(rate_per_s * total_s))) / rate_per_s
    return _at_least_one(times[times < total_s], total_s)


def steps(capacity_per_s: float, spans_s: Sequence[float], seed: int) -> Times:
    """A Poisson process whose rate steps up and down again: an overload and its aftermath.

    Args:
        capacity_per_s: Requests per second that `STEPS` multiply.
        spans_s: Lengths of the three spans.
        seed: Seed of the draw.
    """
    rng = np.random.default_rng(seed)
    times, start = [], 0.0
    for span, share in zip(spans_s, STEPS, strict=True):
        count = round(share * capacity_per_s * span)
        times.append(np.sort(rng.uniform(start, start + span, count)))
        start += span
    return _at_least_one(np.concatenate(times), start)


def bursts(rate_per_s: float, spans_s: Sequence[float], seed: int, shape: BurstShape) -> Times:
    """A Poisson process that switches between a calm and a busy rate (MMPP with two states)."""
    rng = np.random.default_rng(seed)
    knots, expected = _switching(rng, sum(spans_s), shape)

    def arrivals(start: float, end: float, count: int) -> Times:
        low, high = np.interp([start, end], knots, expected)
        return np.interp(rng.uniform(low, high, count), expected, knots)

    return _fill(rate_per_s, spans_s, arrivals)


def _switching(rng: np.random.Generator, total_s: float, shape: BurstShape) -> tuple[Times, Times]:
    """Times at which the rate switches, and the expected arrivals up to each (in any unit)."""
    mean_calm_s = shape.mean_burst_s * (1.0 - shape.share) / shape.share
    busy = bool(rng.random() < shape.share)
    moments, expected = [0.0], [0.0]
    while moments[-1] < total_s:
        length = rng.exponential(shape.mean_burst_s if busy else mean_calm_s)
        moments.append(moments[-1] + length)
        expected.append(expected[-1] + length * (shape.ratio if busy else 1.0))
        busy = not busy
    return np.array(moments), np.array(expected)


def _fill(rate_per_s: float, spans_s: Sequence[float], draw: _Draw) -> Times:
    times = []
    start, count_before = 0.0, 0
    for span in spans_s:
        end = start + span
        count = round(rate_per_s * end) - count_before
        times.append(np.sort(draw(start, end, count)))
        start, count_before = end, count_before + count
    return _at_least_one(np.concatenate(times), start)


def _at_least_one(times: Times, end: float) -> Times:
    return times if times.size else np.array([end / 2.0])


def trace(
    gaps_us: npt.NDArray[np.float64], rate_per_s: float, spans_s: Sequence[float], seed: int
) -> Times:
    """A recorded sequence of gaps, scaled so that the run has this mean rate.

    The seed chooses where in the recording it starts; it wraps around at the end. Only the mean
    over the whole run is exact: a trace is replayed for its own fluctuations.
    """
    total_s = sum(spans_s)
    count = max(round(rate_per_s * total_s), 1)
    first = int(np.random.default_rng(seed).integers(gaps_us.size))
    times: Times = np.cumsum(np.resize(np.roll(gaps_us, -first), count))
    times *= total_s / times[-1]
    return times


def finite(given: object) -> float | None:
    """A number, possibly given as text; None if it is not a number or exceeds a float."""
    try:
        value = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and not isinstance(given, bool) else None


def too_long(length_s: float, unit: str = "s") -> str:
    """What is wrong with a last time this long after the first, in this unit; empty if nothing."""
    if length_s <= MOST_S:
        return ""
    smaller = [*TIME_UNITS][[*TIME_UNITS].index(unit) + 1 :]
    read_s = {other: length_s / TIME_UNITS[unit] * TIME_UNITS[other] for other in smaller}
    likely_s = {other: s for other, s in read_s.items() if _LIKELY_S <= s <= MOST_S}
    fitting = [f"{span_text(s)} if times are in {other}" for other, s in likely_s.items()]
    likely = f" ({', '.join(fitting)})" if fitting else ""
    return (
        f"{span_text(length_s)} after the first request{likely}: a recording lasts at most "
        f"{span_text(MOST_S)}"
    )


def span_text(length_s: float) -> str:
    """A length of time such as ``16.7 h`` or ``31 days``, in the largest unit that exceeds one."""
    sizes = {"days": 86_400.0, "h": 3_600.0, "min": 60.0, "s": 1.0}
    unit = next((unit for unit, size in sizes.items() if length_s > size), "s")
    return f"{length_s / sizes[unit]:.4g} {unit}"


_GAPS = "write gaps in microseconds, one per line"


def read_trace(path: Path) -> npt.NDArray[np.float64]:
    """Gaps between requests in microseconds, one per line.

    Raises:
        SpecError: The file cannot be read, a line is not a gap, or the gaps exceed `MOST_S` in
            total.
    """
    gaps, total_us = [], 0.0
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        gap = finite(line)
        if gap is None or gap < 0.0:
            recorded = line.startswith("{")
            hint = "a recording is of arrivals: {kind: recording}" if recorded else _GAPS
            raise SpecError(f"{path}:{number}: not a gap in microseconds: {line!r}", hint)
        gaps.append(gap)
        total_us += gap
        if long := too_long(total_us / 1e6, "us"):
            raise SpecError(f"{path}:{number}: {long}", _GAPS)
    if not any(gaps):
        raise SpecError(
            f"{path}: no gaps between requests", "write gaps in microseconds, one per line"
        )
    return np.array(gaps)


def shape_of(arrivals: ArrivalsSpec) -> Shape | None:
    """What arrivals have beside their rate: the shape of bursts, or a recorded trace."""
    if isinstance(arrivals, TraceArrivals):
        return read_trace(arrivals.file)
    if isinstance(arrivals, BurstArrivals):
        length_s = float(arrivals.burst_length)
        return BurstShape(arrivals.burst_ratio, float(arrivals.burst_share), length_s)
    return None


def write_intervals(times: Times, path: Path) -> Times:
    """Writes perf_analyzer's file of intervals; returns the due times that result, in seconds.

    perf_analyzer takes whole microseconds. Times are rounded rather than gaps, so that errors do
    not add up. After the last interval, perf_analyzer starts over with the first.
    """
    moments_us = np.rint(times * 1e6).astype(np.int64)
    gaps_us = np.diff(moments_us, prepend=0)
    path.write_text("\n".join(map(str, gaps_us.tolist())) + "\n")
    kept: Times = moments_us / 1e6
    return kept


def expected_requests(load: LoadPoint, seconds: float) -> int:
    """Approximate number of requests of a load in this time."""
    rate = load.level if load.arrivals.open_loop else load.level / _ASSUMED_LATENCY_S
    return math.ceil(rate * seconds)


def read_lines(path: Path) -> list[str]:
    """The lines of a regular file.

    Raises:
        SpecError: The file does not exist, cannot be read, is not text, or is a device.
    """
    try:
        return read_limited(path, MOST_FILE_BYTES).decode("utf-8").splitlines()
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text") from error
