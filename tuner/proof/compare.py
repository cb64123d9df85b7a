"""How many times better one config is than another, from what each showed in the same rounds.

A logarithm is taken to be the sum of a config's own value, an effect of the round, and a deviation
that has one variance for all: the two-way layout without interaction of any text on analysis of
variance. What the arrivals do to all cancels; how one start of a server differs from the next only
averages out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.load.watch.machine import OTHER_CPU_PERCENT
from tuner.score.ratio import Ratio, quantile

#: A capacity is read off a line between two loads, which may put it off by as much in every round:
#: no number of rounds makes a ratio surer than this share. Simulated: `benchmarks/claims/proof.py`.
SYSTEMATIC = 0.02


@dataclass(frozen=True)
class Side:
    """One config in the rounds.

    Attributes:
        values: One positive value a round: a capacity, or what else is compared; more is better.
        taken_percent: Of the machine's CPU that others took meanwhile, one a round.
    """

    values: Sequence[float]
    taken_percent: Sequence[float]


@dataclass(frozen=True)
class _Fit:
    """The logarithm of a ratio.

    Attributes:
        error: Standard error of the mean; None where nothing can be compared.
        freedom: Degrees of freedom of that error.
    """

    mean: float
    error: float | None
    freedom: int


def compare(side: Side, other: Side, error: float, beside: Sequence[Side] = ()) -> Ratio:
    """The geometric mean of ``own`` over ``other``, as if others had taken as much beside both.

    Where others took much more of the machine beside one config of a round than beside another,
    what they took is a covariate; where that cannot be fitted, the interval has no ends.

    Args:
        error: Share of intervals that may miss, both sides together.
        beside: Further configs in the same rounds, which tell how much servers deviate.

    Raises:
        ValueError: They are of unequal length, or of fewer than two rounds.
    """
    fit = _fit(side, other, beside)
    if fit.error is None:
        return Ratio(math.exp(fit.mean), 0.0, math.inf)
    half = quantile(fit.freedom, error) * fit.error + SYSTEMATIC
    return Ratio(*(math.exp(fit.mean + by) for by in (0.0, -half, half)))


def chance_of_gain(side: Side, other: Side) -> float | None:
    """Probability that ``own`` is the better one, 0 to 1, by Student's t of the same comparison.

    None where the two cannot be compared. Every true ratio is taken to be as likely beforehand.
    """
    fit = _fit(side, other)
    if fit.error is None:
        return None
    from scipy.special import stdtr  # without the weight of scipy.stats

    return float(stdtr(fit.freedom, fit.mean / max(fit.error, SYSTEMATIC / 2.0)))


def _fit(first: Side, other: Side, beside: Sequence[Side] = ()) -> _Fit:
    sides = (first, other, *beside)
    logs = np.log([side.values for side in sides])
    taken = np.array([side.taken_percent for side in sides])
    count, rounds = logs.shape
    if rounds < 2:
        raise ValueError("a comparison needs two rounds")
    # one column for each config, one for each round but the first, and the covariate
    columns = [*np.repeat(np.eye(count), rounds, axis=0).T]
    columns += [*np.tile(np.eye(rounds)[:, 1:], (count, 1)).T]
    if float(np.ptp(taken, axis=0).max()) > OTHER_CPU_PERCENT:
        columns.append(taken.ravel())
    design, contrast = np.array(columns).T, np.zeros(len(columns))
    contrast[:2] = 1.0, -1.0
    freedom = design.shape[0] - int(np.linalg.matrix_rank(design))
    inverse = np.linalg.pinv(design.T @ design)
    known = bool(np.allclose(contrast @ inverse @ design.T @ design, contrast, atol=1e-6))
    if not known or freedom < 1:
        return _Fit(float((logs[0] - logs[1]).mean()), None, freedom)
    fitted = inverse @ design.T @ logs.ravel()
    left = logs.ravel() - design @ fitted
    variance = float(left @ left) / freedom * float(contrast @ inverse @ contrast)
    return _Fit(float(contrast @ fitted), math.sqrt(variance), freedom)
