"""Trends of latency and memory over a window, and the correlation time of latencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuner.measurement.host_use import MemoryTrend
from tuner.measurement.measurement import Course

Values = npt.NDArray[np.float64]

#: Number of batches of equal time whose means show a trend; fewer than `_LEAST` requests show none.
BATCHES, _LEAST = 20, 60
#: Sokal's factor: autocorrelations are summed over this many correlation times.
_SOKAL = 5.0


def course_of(latencies_us: Values, due_s: Values, duration_s: float) -> Course | None:
    """How latency changed over a window; None with too few requests.

    Args:
        latencies_us: Latency of each request, in the order in which they were due.
        due_s: When each request was due.
        duration_s: Length of the window.
    """
    if latencies_us.size < _LEAST:
        return None
    growth, error = _trend(latencies_us, due_s, duration_s)
    requests = correlated_requests(latencies_us)
    return Course(growth, error, 0.5 * requests * duration_s / latencies_us.size)


def correlated_requests(values: Values) -> float:
    """The correlation time: the number of neighbors worth one independent request; at least 1.

    This is the sum of all autocorrelations, 1 + 2 (r1 + r2 + ...), up to the first lag of at least
    five such times. Source: Sokal, "Monte Carlo methods in statistical mechanics" (1997), section
    3. A window shorter than about ten correlation times gives too small a value.
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

    The growth is that of a line through the means of batches. Neighboring batches are correlated,
    which makes the error larger; with so few batches, the estimate of that correlation is too low
    and is corrected (Marriott and Pope 1954: by about (1 + 3 r) / n, here for a moderate r).
    """
    batch = np.minimum((due_s / duration_s * BATCHES).astype(int), BATCHES - 1)
    counts = np.bincount(batch, minlength=BATCHES)
    means = np.bincount(batch, latencies_us, minlength=BATCHES)[counts > 0] / counts[counts > 0]
    if means.size < BATCHES // 2:
        return 0.0, 0.0
    growth, error = _line(means)
    mean = float(latencies_us.mean())
    return growth / mean, error / mean


def memory_trend(used_bytes: Sequence[float]) -> MemoryTrend | None:
    """The trend of memory over a window, from evenly spaced readings; None with too few."""
    if len(used_bytes) < BATCHES:
        return None
    means = np.array([part.mean() for part in np.array_split(np.array(used_bytes), BATCHES)])
    late = means[BATCHES // 2 :]
    return MemoryTrend(float(means.mean()), *_line(means), *_line(late))


def _line(means: Values) -> tuple[float, float]:
    """Growth from the first to the last mean on a line of least squares, and its standard error."""
    x = np.arange(means.size) - (means.size - 1) / 2
    spread = float(x @ x)
    slope = float(x @ means) / spread
    rest = means - means.mean() - slope * x
    squares = float(rest @ rest)
    if squares <= 0.0:
        return slope * means.size, 0.0
    alike = max(float(rest[1:] @ rest[:-1]) / squares, 0.0)
    alike = min(alike + 3.0 / means.size, 0.95)
    error = np.sqrt(squares / (means.size - 2) / spread * (1.0 + alike) / (1.0 - alike))
    return slope * means.size, float(error) * means.size
