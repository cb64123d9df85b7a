"""A Gaussian process over candidates, with length scales and noise fitted to the observations.

The kernel is Matern 5/2 with a length scale for each parameter (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, equations 4.17 and 5.2). An observation is a value, or a bound
on it with a probit likelihood, as in Tobit regression, and the same noise. Laplace's approximation
(algorithms 3.1 and 3.2 of the book) combines both in one posterior.

The kernel's parameters maximize evidence times prior, from the best of fixed starting points. So
equal observations give equal models.
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
#: Most steps of Newton's method, which needs few, and of the maximization of the evidence.
_NEWTON, _STEPS = 30, 12
_CONVERGED = 1e-7
#: Starting points of that maximization, as logarithms relative to the medians of the priors.
_NOISIER, _SHORTER = (-0.7, 0.7), (0.0, 0.9)
#: Step of its numerical derivatives, in logarithms.
_DISTANCE = 1e-4


class Bound(Enum):
    """What an observation says about a value."""

    VALUE = 0
    AT_MOST = -1
    AT_LEAST = 1


@dataclass(frozen=True)
class Prior:
    """The log-normal prior of one kernel parameter, with median and deviation of the logarithm."""

    middle: float
    spread: float

    def cost(self, log: float) -> float:
        return 0.5 * ((log - math.log(self.middle)) / self.spread) ** 2


@dataclass(frozen=True)
class Priors:
    """The priors of the kernel's parameters.

    Attributes:
        amplitudes: Standard deviation of the values, for each group of parameters.
        length: Length scale, as a share of a parameter's range.
        noise: Standard deviation of an observation.
        common: Standard deviation of the mean of all values, fixed.
    """

    amplitudes: Sequence[Prior] = (Prior(0.3, 0.8),)
    length: Prior = Prior(0.7, 0.7)
    noise: Prior = Prior(0.05, 1.0)
    common: float = 0.3


@dataclass(frozen=True)
class Kernel:
    """A kernel that adds the effects of groups of parameters.

    Attributes:
        groups: The group of each parameter, from 0, shape (parameters,).
        lengths: The length scale of each parameter, shape (parameters,).
        amplitudes: Standard deviation of each group's effect, shape (groups,), in the unit of the
            values, like ``common`` and ``noise``.
        common: Standard deviation of the mean of all values.
        noise: Standard deviation of an observation.
    """

    groups: npt.NDArray[np.int64]
    lengths: Vector
    amplitudes: Vector
    common: float
    noise: float

    def covariance(self, squares: npt.NDArray[np.float64]) -> Matrix:
        """The covariance of candidates, shape (n, m), by ``squares``, shape (parameters, n, m)."""
        total: Matrix = np.full(squares.shape[1:], self.common**2)
        for group, amplitude in enumerate(self.amplitudes):
            inside = self.groups == group
            weights = self.lengths[inside] ** -2.0
            far = _SQRT5 * np.sqrt(np.einsum("i,ijk", weights, squares[inside]))
            total += amplitude**2 * (1.0 + far + far**2 / 3.0) * np.exp(-far)
        return total

    @property
    def variance(self) -> float:
        """The prior variance of a value."""
        return self.common**2 + float((self.amplitudes**2).sum())


@dataclass(frozen=True)
class Observations:
    """The observations, with the distances between the observed candidates.

    Attributes:
        squares: Squared distances, shape (parameters, candidates, candidates).
        groups: The group of each parameter, from 0, shape (parameters,).
        values: The observed values or bounds, centered about 0, shape (candidates,).
        bounds: Whether each observation is a value or a bound.
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
    """The posterior under one kernel, with n observed candidates.

    Attributes:
        slope: Gradient of the log likelihood at the mode, which gives the means, shape (n,).
        root: Square root of the log likelihood's negative curvature there, shape (n,).
        factor: Lower Cholesky factor of B in the book's algorithm 3.1, shape (n, n).
        evidence: Logarithm of the marginal likelihood.
    """

    kernel: Kernel
    slope: Vector
    root: Vector
    factor: Matrix
    evidence: float

    def at(self, squares: npt.NDArray[np.float64]) -> tuple[Vector, Vector]:
        """Mean and standard deviation of each candidate, shape (m,).

        ``squares``: squared distances from each candidate to each observed one, shape
        (parameters, m, n).
        """
        from scipy.linalg import solve_triangular

        across = self.kernel.covariance(squares)
        known = solve_triangular(self.factor, self.root[:, None] * across.T, lower=True)
        variance = self.kernel.variance - (known**2).sum(axis=0)
        return across @ self.slope, np.sqrt(np.maximum(variance, 1e-12))

    def apart(self, squares: npt.NDArray[np.float64]) -> Matrix:
        """Prior standard deviation of the difference to each observed candidate, shape (m, n)."""
        shared = self.kernel.covariance(squares)
        differing: Matrix = np.sqrt(np.maximum(2.0 * (self.kernel.variance - shared), 0.0))
        return differing


def learned(seen: Observations, priors: Priors) -> Posterior:
    """The posterior under the most probable kernel, by evidence and priors."""
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
    """Laplace's approximation around the mode, which is exact where all observations are values."""
    from scipy.linalg.lapack import dposv  # starts no threads here, unlike numpy's `solve`

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
        """Gradient, negative curvature and value of the log likelihood at ``mode``."""
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
