"""What the twin gets wrong, learned from what was measured: a Gaussian process over candidates.

Near candidates are wrong alike. What the twin knows nothing about (a backend's parameter) may
change a score much more than what it simulates, so that values never tried stay worth a trial.
Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25 and 2.26.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.search.features import Features
from tuner.space.candidate import Candidate

Vector = npt.NDArray[np.float64]

#: Distance over which errors are alike, in units of a parameter's whole range.
_LENGTH = 0.5
#: Standard deviation of errors: of all alike, of near ones at least, of a value never tried.
_COMMON, _LEAST, _UNKNOWN = 0.3, 0.04, 0.25
#: And of each candidate alone, which no other one tells of, before any prediction was checked;
#: worth so many checked ones.
_OWN, _OWN_COUNT = 0.05, 2


@dataclass(frozen=True)
class Residual:
    """Measured worth less simulated worth, with the standard deviation of the measurement."""

    candidate: Candidate
    value: float
    noise: float


def own_error(surprises: Sequence[float]) -> float:
    """Standard deviation of the error of a candidate alone.

    Args:
        surprises: Measured worth less predicted worth of candidates that were predicted before
            they were measured: residuals of a fit that has seen them would look too good.
    """
    total = _OWN_COUNT * _OWN**2 + sum(s * s for s in surprises)
    return math.sqrt(total / (_OWN_COUNT + len(surprises)))


@dataclass(frozen=True)
class Correction:
    """Fitted to residuals; see `tuner.twin.worth` for their unit.

    Attributes:
        own: See `own_error`.
    """

    features: Features
    residuals: Sequence[Residual]
    own: float

    def of(self, candidates: Sequence[Candidate]) -> tuple[Vector, Vector]:
        """Mean and standard deviation of the error at each candidate, not measured itself."""
        if not self.residuals:
            return np.zeros(len(candidates)), np.full(len(candidates), _COMMON)
        known = [r.candidate for r in self.residuals]
        values = np.array([r.value for r in self.residuals])
        amplitude = self._amplitude(values)
        noise = np.diag([r.noise**2 + self.own**2 for r in self.residuals])
        among = self._covariance(known, known, amplitude) + noise
        across = self._covariance(candidates, known, amplitude)
        mean = across @ np.linalg.solve(among, values)
        explained = np.einsum("ij,ji->i", across, np.linalg.solve(among, across.T))
        prior = _COMMON**2 + amplitude**2 + (_UNKNOWN**2 if self.features.other else 0.0)
        return mean, np.sqrt(np.maximum(prior - explained, 0.0) + self.own**2)

    def _amplitude(self, values: Vector) -> float:
        """How much errors differ between candidates; a few outliers do not count."""
        spread = 1.4826 * float(np.median(np.abs(values - np.median(values))))
        return max(spread, _LEAST)

    def _covariance(
        self, one: Sequence[Candidate], other: Sequence[Candidate], amplitude: float
    ) -> Vector:
        first, second = (
            np.stack([self.features.of_scheduling(c) for c in candidates])
            for candidates in (one, other)
        )
        squares = ((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=2)
        near = np.exp(-squares / (2.0 * _LENGTH**2))
        total: Vector = _COMMON**2 + amplitude**2 * near
        if self.features.other:
            total = total + _UNKNOWN**2 * self._alike(one, other)
        return total

    def _alike(self, one: Sequence[Candidate], other: Sequence[Candidate]) -> Vector:
        """Share of the other parameters in which two candidates agree, to a power."""
        first, second = (
            [self.features.of_others(c) for c in candidates] for candidates in (one, other)
        )
        agree = np.array([[sum(map(_same, a, b)) for b in second] for a in first], float)
        shares: Vector = 0.3 ** (len(self.features.other) - agree)
        return shares


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
