"""The ratio of one config's values to another's, from their measurements in the same rounds.

The logarithm of a value is modeled as the sum of an effect of the config, an effect of the round
and a deviation, whose variance is the same for all: the two-way layout without interaction of
textbooks on analysis of variance. The effect of a round's arrivals on all configs cancels. The
differences between starts of a server do not cancel: they average out over the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.load.watch.machine import OTHER_CPU_PERCENT
from tuner.score.ratio import Ratio, quantile

#: A capacity is interpolated between two loads, which may cause the same error in every round, as a
#: share of the capacity: more rounds do not reduce it, so it widens every interval.
#: Simulated: `benchmarks/claims/proof.py`.
SYSTEMATIC = 0.02
#: Short windows overstate a capacity, by an error that falls with their number of requests. The
#: errors of two configs cancel unless their queues differ in kind, which their tails show: up to
#: `ALIKE` apart, they do not. Each unit beyond widens the interval by `UNLIKE` over the number of
#: requests in a window. Simulated: `benchmarks/claims/adverse.py`.
ALIKE, UNLIKE = 0.2, 36.0
#: Standard deviation of a uniform distribution, as a share of its width: a capacity is anywhere
#: between two loads whose latencies are both far from the bound, where it may lie in every round.
UNIFORM = 1.0 / math.sqrt(12.0)


@dataclass(frozen=True)
class Tail:
    """The latencies of a config near its capacity.

    Attributes:
        spread: The logarithm of the p99 over the median, averaged over the windows.
        requests: Mean number of requests in a window.
    """

    spread: float
    requests: float


@dataclass(frozen=True)
class Side:
    """One config in the rounds.

    Attributes:
        values: One positive value per round, such as a capacity; a higher value is better.
        taken_percent: Percentage of the machine's CPU time that other processes used, one value per
            round.
        tail: The latencies that the values are derived from; None for values of another kind.
        unseen: Logarithm of the higher over the lower of the two loads around a capacity, where
            neither shows latencies near their bound; averaged over all rounds.
    """

    values: Sequence[float]
    taken_percent: Sequence[float]
    tail: Tail | None = None
    unseen: float = 0.0


@dataclass(frozen=True)
class _Fit:
    """The logarithm of a ratio, estimated.

    Attributes:
        mean: The estimate.
        error: Standard error of the estimate; None where the rounds do not determine it.
        freedom: Degrees of freedom of that error.
    """

    mean: float
    error: float | None
    freedom: int


def compare(side: Side, other: Side, error: float, beside: Sequence[Side] = ()) -> Ratio:
    """The geometric mean of the ratios of ``side`` to ``other``, with its interval.

    Where other processes used much more of the CPU during one config's measurement in a round than
    during another's, their CPU time is a covariate of the fit. Where that fit is not possible, as
    where they took more beside one config in every round, the interval is from 0 to infinity.

    Args:
        error: The share of intervals that may miss the true ratio, both ends together.
        beside: Further configs in the same rounds: their deviations improve the estimate of the
            variance.

    Raises:
        ValueError: The sides are of unequal length, or have fewer than two rounds.
    """
    fit = _fit(side, other, beside)
    if fit.error is None:
        return Ratio(math.exp(fit.mean), 0.0, math.inf)
    half = quantile(fit.freedom, error) * fit.error + systematic(side, other)
    return Ratio(*(math.exp(fit.mean + by) for by in (0.0, -half, half)))


def chance_of_gain(side: Side, other: Side) -> float | None:
    """The probability, 0 to 1, that ``side`` is better than ``other``, by Student's t distribution.

    None where the two cannot be compared. The prior is flat over the logarithm of the ratio.

    Raises:
        ValueError: The sides are of unequal length, or have fewer than two rounds.
    """
    fit = _fit(side, other)
    if fit.error is None:
        return None
    from scipy.special import stdtr  # without the weight of scipy.stats

    least = systematic(side, other) / 2.0
    return float(stdtr(fit.freedom, fit.mean / max(fit.error, least)))


def systematic(side: Side, other: Side) -> float:
    """The error of the logarithm of a ratio of capacities that more rounds do not reduce."""
    error, one, two = SYSTEMATIC + UNIFORM * max(side.unseen, other.unseen), side.tail, other.tail
    if one is None or two is None:
        return error
    apart = max(abs(one.spread - two.spread) - ALIKE, 0.0)
    return error + UNLIKE * apart / min(one.requests, two.requests)


def _overlap(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> bool:
    """Whether other processes took about as much beside both configs, in some round of each.

    Else no round shows what one config does where others take what they took beside the other. That
    may be due to the configs: others take what a config leaves.
    """
    apart = max(one.min() - other.max(), other.min() - one.max())
    return bool(apart <= OTHER_CPU_PERCENT)


def _fit(first: Side, other: Side, beside: Sequence[Side] = ()) -> _Fit:
    sides = (first, other, *beside)
    logs = np.log([side.values for side in sides])
    taken = np.array([side.taken_percent for side in sides])
    count, rounds = logs.shape
    if rounds < 2:
        raise ValueError("a comparison needs two rounds")
    # one column per config, one per round except the first, and the covariate
    columns = [*np.repeat(np.eye(count), rounds, axis=0).T]
    columns += [*np.tile(np.eye(rounds)[:, 1:], (count, 1)).T]
    if float(np.ptp(taken, axis=0).max()) > OTHER_CPU_PERCENT:
        columns.append(taken.ravel())
    design, contrast = np.array(columns).T, np.zeros(len(columns))
    contrast[:2] = 1.0, -1.0
    freedom = design.shape[0] - int(np.linalg.matrix_rank(design))
    inverse = np.linalg.pinv(design.T @ design)
    known = _overlap(taken[0], taken[1]) and bool(
        np.allclose(contrast @ inverse @ design.T @ design, contrast, atol=1e-6)
    )
    if not known or freedom < 1:
        return _Fit(float((logs[0] - logs[1]).mean()), None, freedom)
    fitted = inverse @ design.T @ logs.ravel()
    left = logs.ravel() - design @ fitted
    variance = float(left @ left) / freedom * float(contrast @ inverse @ contrast)
    return _Fit(float(contrast @ fitted), math.sqrt(variance), freedom)
