"""Ratios of paired rounds with their confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """How many times better, with its interval. ``low == high == estimate`` for one round."""

    estimate: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"estimate": self.estimate, "low": self.low, "high": self.high}


def paired_ratio(better: Sequence[float], worse: Sequence[float], looks: int = 1) -> Ratio:
    """Geometric mean of ``better[i] / worse[i]`` with Student's t interval of the logarithms.

    Rounds are pairs: both members saw the machine in the same minute, and the same arrivals.
    Source: any text on paired comparisons; the logarithm makes ratios symmetric.

    Args:
        better: One value a round.
        worse: As many.
        looks: How often the same rounds are looked at before it is decided. Each look gets its
            share of the error (Bonferroni), so that the intervals of all of them together hold
            with `CONFIDENCE`.

    Raises:
        ValueError: The sequences are empty or of unequal length.
    """
    if not better or len(better) != len(worse):
        raise ValueError("paired_ratio needs as many of the one as of the other, at least one")
    logs = [math.log(b / w) for b, w in zip(better, worse, strict=True)]
    mean = math.fsum(logs) / len(logs)
    if len(logs) == 1:
        estimate = math.exp(mean)
        return Ratio(estimate, estimate, estimate)
    variance = math.fsum((x - mean) ** 2 for x in logs) / (len(logs) - 1)
    half = half_width(math.sqrt(variance), len(logs), looks)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def half_width(deviation: float, count: int, looks: int) -> float:
    """Half the interval of a mean of two or more values: Student's t, see `paired_ratio`."""
    from scipy.special import stdtrit  # quantiles of Student's t, without the weight of stats

    error = (1.0 - CONFIDENCE) / looks
    return float(stdtrit(count - 1, 1.0 - error / 2)) * deviation / math.sqrt(count)
