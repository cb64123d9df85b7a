"""A Gaussian process over candidates; its length scales and noise are learned.

Matern 5/2 with a length scale for each parameter (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, equations 4.17 and 5.2). What is known of a candidate is a value, or only a
bound on it: a probit likelihood, as in Tobit regression, with the same noise; Laplace's
approximation (their algorithms 3.1 and 3.2) makes both one posterior.

The numbers of the kernel are those of the largest evidence times a prior, searched from the best of
fixed starts: equal observations, equal model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]

_SQRT5 = math.sqrt(5.0)
_LOG_2PI = math.log(2.0 * math.pi)
#: Steps of Newton's method, of which a handful are needed, and of the search for the evidence.
_NEWTON, _STEPS = 30, 12
_CONVERGED = 1e-7
#: Where that search may begin, in logarithms from the middle of the priors.
_NOISIER, _SHORTER = (-0.7, 0.7), (0.0, 0.9)
#: Of its derivatives, likewise.
_DISTANCE = 1e-4


class Bound(Enum):
    """What a measurement tells of a value."""

    VALUE = 0
    AT_MOST = -1
    AT_LEAST = 1


@dataclass(frozen=True)
class Prior:
    """What is expected of one number of the kernel: its logarithm is normally distributed."""

    middle: float
    spread: float

    def cost(self, log: float) -> float:
        return 0.5 * ((log - math.log(self.middle)) / self.spread) ** 2


@dataclass(frozen=True)
class Priors:
    """What is known of the kernel before anything is.

    Attributes:
        amplitudes: How much values differ over the parameters of each group (standard deviation).
        length: Over which share of a parameter's range they are alike.
        noise: Of a measurement (standard deviation).
        common: How far off the middle all values may be alike (standard deviation).
    """

    amplitudes: Sequence[Prior] = (Prior(0.3, 0.8),)
    length: Prior = Prior(0.7, 0.7)
    noise: Prior = Prior(0.05, 1.0)
    common: float = 0.3


@dataclass(frozen=True)
class Kernel:
    """A sum over groups of parameters: what one does is beside what another does.

    Attributes:
        groups: Of each parameter.
        lengths: Likewise.
        amplitudes: Of each group; standard deviations in the unit of the values, as the others.
    """

    groups: npt.NDArray[np.int64]
    lengths: Vector
    amplitudes: Vector
    common: float
    noise: float

    def covariance(self, squares: npt.NDArray[np.float64]) -> Matrix:
        """From squared distances, one matrix for each parameter."""
        total: Matrix = np.full(squares.shape[1:], self.common**2)
        for group, amplitude in enumerate(self.amplitudes):
            inside = self.groups == group
            weights = self.lengths[inside] ** -2.0
            far = _SQRT5 * np.sqrt(np.einsum("i,ijk", weights, squares[inside]))
            total += amplitude**2 * (1.0 + far + far**2 / 3.0) * np.exp(-far)
        return total

    @property
    def variance(self) -> float:
        """The variance of a value about which nothing is known."""
        return self.common**2 + float((self.amplitudes**2).sum())


@dataclass(frozen=True)
class Observations:
    """What was observed, and how far apart the observed candidates are.

    Attributes:
        squares: Squared distances in each parameter: parameters, candidates, candidates.
        groups: Of each parameter, from 0 on.
        values: Or bounds; about zero in the middle.
        told: What each is.
    """

    squares: npt.NDArray[np.float64]
    groups: npt.NDArray[np.int64]
    values: Vector
    bounds: Sequence[Bound]

    @cached_property
    def signs(self) -> Vector:
        return np.array([t.value for t in self.bounds], float)


@dataclass(frozen=True)
class Posterior:
    """Under one kernel.

    Attributes:
        slope: Of the log likelihood at the mode: what candidates' means are made of.
        root: Square root of the likelihood's curvature there.
        factor: Lower Cholesky factor of one plus the covariance between two such roots.
        evidence: Logarithm of the marginal likelihood.
    """

    kernel: Kernel
    slope: Vector
    root: Vector
    factor: Matrix
    evidence: float

    def at(self, squares: npt.NDArray[np.float64]) -> tuple[Vector, Vector]:
        """Mean and standard deviation; ``squares`` from each candidate to each observed one."""
        from scipy.linalg import solve_triangular

        across = self.kernel.covariance(squares)
        known = solve_triangular(self.factor, self.root[:, None] * across.T, lower=True)
        variance = self.kernel.variance - (known**2).sum(axis=0)
        return across @ self.slope, np.sqrt(np.maximum(variance, 1e-12))

    def apart(self, squares: npt.NDArray[np.float64]) -> Matrix:
        """By how much each candidate's value and each observed one may differ (deviation)."""
        shared = self.kernel.covariance(squares)
        differing: Matrix = np.sqrt(np.maximum(2.0 * (self.kernel.variance - shared), 0.0))
        return differing


def learned(seen: Observations, priors: Priors) -> Posterior:
    """The posterior under the likeliest kernel."""
    from scipy.optimize import minimize

    count = seen.groups.size
    amplitudes = priors.amplitudes[: int(seen.groups.max(initial=0)) + 1]
    each = [priors.noise, *amplitudes, *[priors.length] * count]
    middle = np.log([p.middle for p in each])
    bounds = [(m - 3.0 * p.spread, m + 3.0 * p.spread) for m, p in zip(middle, each, strict=True)]

    def kernel(logs: Vector) -> Kernel:
        values = np.exp(logs)
        first = values.size - count
        return Kernel(seen.groups, values[first:], values[1:first], priors.common, float(values[0]))

    def cost(logs: Vector) -> float:
        prior = sum(p.cost(log) for p, log in zip(each, logs, strict=True))
        return prior - posterior(seen, kernel(logs)).evidence

    def start(noisier: float, shorter: float) -> Vector:
        still = np.zeros(len(amplitudes))
        moved: Vector = middle + np.concatenate([[noisier], still, np.full(count, -shorter)])
        return moved

    options = {"maxiter": _STEPS, "eps": _DISTANCE}
    begin = min((start(n, s) for n in _NOISIER for s in _SHORTER), key=cost)
    optimum: Any = minimize(cost, begin, method="SLSQP", bounds=bounds, options=options)
    return posterior(seen, kernel(optimum.x))


def posterior(seen: Observations, kernel: Kernel) -> Posterior:
    """Laplace's approximation around the mode, which is exact where only values were told."""
    from scipy.linalg.lapack import dposv  # unlike numpy's `solve`, it starts no threads here

    prior = kernel.covariance(seen.squares)
    likelihood = _Likelihood(seen, kernel.noise)
    weights, mode = np.zeros(seen.values.size), np.zeros(seen.values.size)
    slope, curvature, log = likelihood.at(mode)
    best = log
    one = np.eye(weights.size)
    for _ in range(_NEWTON):
        root = np.sqrt(curvature)
        aim = curvature * mode + slope
        among = one + root[:, None] * prior * root
        step_to = aim - root * dposv(among, root * (prior @ aim))[1]
        step, now = 1.0, best
        while step > 1e-3:  # the log likelihood is concave: a part of the step always climbs
            tried = weights + step * (step_to - weights)
            mode = prior @ tried
            slope, curvature, log = likelihood.at(mode)
            now = log - 0.5 * float(tried @ mode)
            if now >= best - 1e-12:
                break
            step *= 0.5
        weights = tried
        if now - best < _CONVERGED:
            break
        best = now
    root = np.sqrt(curvature)
    factor = np.linalg.cholesky(one + root[:, None] * prior * root)
    evidence = log - 0.5 * float(weights @ mode) - float(np.log(np.diag(factor)).sum())
    return Posterior(kernel, slope, root, factor, evidence)


@dataclass(frozen=True)
class _Likelihood:
    seen: Observations
    noise: float

    def at(self, mode: Vector) -> tuple[Vector, Vector, float]:
        """Slope and curvature (positive) of its logarithm, and that itself."""
        from scipy.special import log_ndtr

        off = (self.seen.values - mode) / self.noise
        exact = self.seen.signs == 0.0
        inside = -self.seen.signs * off  # above 0: the bound holds
        log_share = log_ndtr(inside)
        hazard = np.exp(-0.5 * inside**2 - 0.5 * _LOG_2PI - log_share)
        slope = np.where(exact, off, self.seen.signs * hazard) / self.noise
        bent = np.maximum(hazard * (hazard + inside), 1e-12)
        curvature = np.where(exact, 1.0, bent) / self.noise**2
        value = -0.5 * off**2 - 0.5 * _LOG_2PI - math.log(self.noise)
        return slope, curvature, float(np.where(exact, value, log_share).sum())
