"""What the twin gets wrong, learned from what was measured: a Gaussian process over candidates.

The twin's errors are alike for similar candidates. What it knows nothing about (a backend's
parameter) may change a score much more than what it simulates, so values never tried remain worth a
trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tuner.search.strategies.features import Features
from tuner.search.strategies.gaussian import Observations, Posterior, Prior, Priors, Told, learned
from tuner.search.strategies.gp import LASTS
from tuner.space.candidate import Candidate

Vector = npt.NDArray[np.float64]

#: Standard deviation of errors before any was seen: of all alike, of near ones, and of what no
#: twin knows, which trials of a single value say nothing about.
_COMMON, _NEAR, _UNKNOWN = 0.3, Prior(0.08, 0.7), Prior(0.25, 0.3)
#: How sure the run's predictions are of the noise that the residuals are to show.
_NOISE_SPREAD = 0.5


@dataclass(frozen=True)
class Residual:
    """Measured worth less simulated worth, or the most it can be."""

    candidate: Candidate
    value: float
    told: Told = Told.VALUE


@dataclass(frozen=True)
class Correction:
    """Fitted to residuals; see `tuner.score.aim` for their unit.

    Attributes:
        own: See `tuner.search.strategies.gp.own_error`.
    """

    features: Features
    residuals: Sequence[Residual]
    own: float

    def of(self, candidates: Sequence[Candidate]) -> tuple[Vector, Vector]:
        """Mean and standard deviation of the error at each candidate, not measured itself."""
        if not self.residuals:
            return np.zeros(len(candidates)), np.full(len(candidates), _COMMON)
        mean, deviation = self._posterior.at(self.features.squares(candidates, self._known))
        return mean, np.hypot(deviation, self.own)

    def of_measured(self, residual: Residual) -> float:
        """Mean of the error of a measured candidate: part of what it showed was luck."""
        mean = float(self.of([residual.candidate])[0][0])
        return mean + LASTS * (residual.value - mean)

    @property
    def _known(self) -> list[Candidate]:
        return [r.candidate for r in self.residuals]

    @cached_property
    def _posterior(self) -> Posterior:
        unknown = self.features.unknown
        amplitudes = [
            p for p, some in ((_NEAR, not all(unknown)), (_UNKNOWN, any(unknown))) if some
        ]
        groups = np.array(unknown, np.int64) * (len(amplitudes) - 1)
        seen = Observations(
            self.features.squares(self._known, self._known),
            groups,
            np.array([r.value for r in self.residuals]),
            [r.told for r in self.residuals],
        )
        noise = Prior(self.own, _NOISE_SPREAD)
        return learned(seen, Priors(amplitudes, noise=noise, common=_COMMON))
