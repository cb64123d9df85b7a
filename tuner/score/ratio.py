"""Ratios of samples, with their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
#: Probability that an interval misses the true ratio, both ends together.
ERROR = 1.0 - CONFIDENCE


@dataclass(frozen=True)
class Ratio:
    """A ratio with its confidence interval; of a single round, all three values are equal."""

    estimate: float
    low: float
    high: float


def paired_ratio(better: Sequence[float], worse: Sequence[float], error: float = ERROR) -> Ratio:
    """Geometric mean of ``better[i] / worse[i]`` with Student's t interval of the logarithms.

    Args:
        error: Probability that the interval misses the true ratio, both ends together: a part of
            `ERROR` where several looks or candidates share it.

    Raises:
        ValueError: The sequences are empty or of unequal length.
    """
    if not better or len(better) != len(worse):
        raise ValueError("paired_ratio needs sequences of equal length, with at least one value")
    return mean_with_interval([b / w for b, w in zip(better, worse, strict=True)], error)


def mean_with_interval(values: Sequence[float], error: float = ERROR) -> Ratio:
    """Geometric mean with Student's t interval of the logarithms; without width for one value."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        estimate = math.exp(mean)
        return Ratio(estimate, estimate, estimate)
    variance = math.fsum((x - mean) ** 2 for x in logs) / (len(logs) - 1)
    half = quantile(len(logs) - 1, error) * math.sqrt(variance) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def two_sample_ratio(now: Sequence[float], before: Sequence[float], error: float = ERROR) -> Ratio:
    """Ratio of the geometric means of two samples that were not taken side by side.

    Student's two-sample t interval of the logarithms, with the pooled variance (Box, Hunter and
    Hunter, Statistics for Experimenters).

    Raises:
        ValueError: A sample is empty, or both together have fewer than three values.
    """
    freedom = len(now) + len(before) - 2
    if not now or not before or freedom < 1:
        raise ValueError("two_sample_ratio needs values of both, three in all")
    logs = [[math.log(value) for value in sample] for sample in (now, before)]
    means = [math.fsum(sample) / len(sample) for sample in logs]
    squares = math.fsum((x - m) ** 2 for s, m in zip(logs, means, strict=True) for x in s)
    deviation = math.sqrt(squares / freedom * (1.0 / len(now) + 1.0 / len(before)))
    mean, half = means[0] - means[1], quantile(freedom, error) * deviation
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def quantile(freedom: float, error: float) -> float:
    """The quantile of Student's t distribution of which ``error`` is outside, on both sides."""
    from scipy.special import stdtrit  # without the weight of scipy.stats

    return float(stdtrit(freedom, 1.0 - error / 2))
