"""The search that asks the scheduler's twin where to look.

A few designed trials, a twin fitted to them, and then the candidate with the largest expected
improvement over the incumbent (Jones, Schonlau and Welch 1998, equation 15): by the twin's
simulation, corrected by what it got wrong so far, with an error bar from both. Where the twin
does not fit, a Gaussian process alone goes on instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.score.aim import NOTHING
from tuner.score.trial import Trial
from tuner.search.fits import Refusals
from tuner.search.strategies.gaussian import Told
from tuner.search.strategies.gp import (
    DECIMALS,
    GOOD,
    LEAST_PROPOSED,
    GaussianStrategy,
    own_error,
    predicted,
    surprises,
)
from tuner.search.strategies.twin.fitting import Fitting, in_words
from tuner.search.strategies.twin.residuals import Correction, Residual
from tuner.search.strategy import Enough, Proposal, chance
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.metrics import GPU_MEMORY
from tuner.spec.model import Spec
from tuner.twin import Twin, Unmodelled, predict

Vector = npt.NDArray[np.float64]

#: Of all candidates considered, this many are simulated to their capacity ...
_FINALISTS = 24
#: ... and of these, this many with resampled fits, this many fits each.
_DOUBTED, _REFITS = 6, 3
#: What the user reads before the last designed trial.
_SLOW = (
    "after this trial the twin, a simulation of Triton's scheduler, is fitted, which may take a "
    "minute"
)
_NOT_SIMULATED = Unmodelled("GPU memory is not simulated")


@dataclass(frozen=True)
class Prospect:
    """A candidate as the model sees it: worth (a logarithm), its standard deviation, and gain."""

    candidate: Candidate
    worth: float
    deviation: float
    gain: float


class TwinStrategy(GaussianStrategy):
    """Designed trials, then expected improvement by the twin.

    What it remembers between proposals (fits) follows from the history alone.
    """

    def __init__(self, space: Space, spec: Spec) -> None:
        super().__init__(space, spec)
        self.fitting = Fitting(space, spec)

    def propose(
        self, number: int, history: Sequence[Trial], taken: Set[str]
    ) -> Proposal | Enough | None:
        left = [c for c in self._designs if c.key not in taken]
        if left and number <= len(self._designs):
            slow = len(left) == 1 and self._simulates
            return Proposal(left[0], informative=True, note=_SLOW if slow else None)
        best = self._leaders(history)
        good = [t.candidate for t in best[:GOOD]]
        drawn = self._pool.draw(chance(self._seed, number), good, taken)
        if not drawn:
            return super().propose(number, history, taken)
        first = len(self._designs) + 1  # the current config is among what is fitted first
        fitted, note = self._fitted(number, history, first)
        prospects = []
        if isinstance(fitted, Twin):
            refusals = Refusals(history)
            left = [c for c in drawn if not refusals.forbids(c)]
            prospects = self._prospects(fitted, left, history, best)
        if not prospects:
            return _with_note(super().propose(number, history, taken), note)
        chosen = prospects[0]
        if number >= first + LEAST_PROPOSED and chosen.gain < self._stop_below and best:
            return Enough(chosen.gain)
        expected = predicted(self.aim, chosen.worth, chosen.deviation)
        return Proposal(chosen.candidate, predicted=expected, note=note)

    @property
    def _simulates(self) -> bool:
        """Whether the twin can tell candidates apart by the objective."""
        return self.aim.objective.metric is not GPU_MEMORY

    def _fitted(
        self, number: int, history: Sequence[Trial], first: int
    ) -> tuple[Twin | Unmodelled, str | None]:
        """The twin, and what to report about it."""
        if not self._simulates:
            return _NOT_SIMULATED, in_words(_NOT_SIMULATED) if number == first else None
        return self.fitting.fitted(history, first), self.fitting.news(history, first)

    def _prospects(
        self,
        twin: Twin,
        candidates: Sequence[Candidate],
        history: Sequence[Trial],
        best: Sequence[Trial],
    ) -> list[Prospect]:
        """The most promising candidates, the most promising one first."""
        # While nothing meets the SLOs: below everything that was tried.
        lowest = min((p.level for t in history for p in t.points), default=1.0)
        level = (best[0].sustained_level if best else None) or lowest
        glances = predict(twin, candidates, self.aim, level, roughly=True)
        known = [(c, w) for c, w in zip(candidates, glances, strict=True) if w is not None]
        if not known:
            return []
        rough = np.array([w for _, w in known])
        own = own_error(surprises(self.aim, history))
        correction = Correction(self._features, self._residuals(twin, level, history), own)
        mean, deviation = correction.of([c for c, _ in known])
        order = np.argsort(-(rough + mean + deviation))[:_FINALISTS]
        finalists = [known[i][0] for i in order]
        # Where nothing meets the SLOs yet, the candidate that comes nearest is tried next.
        worths = self._worths(twin, finalists, level) if best else rough[order]
        believed = self._believed(twin, level, correction, best[0]) if best else None
        prospects = [
            _prospect(c, float(w + mean[i]), float(deviation[i]), believed)
            for i, c, w in zip(order, finalists, worths, strict=True)
        ]
        chosen = sorted(range(len(prospects)), key=lambda i: -prospects[i].gain)[:_DOUBTED]
        doubts = self._doubts(twin, [finalists[i] for i in chosen], level, worths[chosen])
        doubted = [
            _prospect(p.candidate, p.worth, math.hypot(p.deviation, d), believed)
            for p, d in zip((prospects[i] for i in chosen), doubts, strict=True)
        ]
        return sorted(doubted, key=lambda p: (-_told_apart(p.gain), p.candidate.key))

    def _worths(
        self, twin: Twin, candidates: Sequence[Candidate], level: float, refit: int | None = None
    ) -> Vector:
        """Those of candidates that can be simulated."""
        return np.array(predict(twin, candidates, self.aim, level, refit=refit), float)

    def _doubts(
        self, twin: Twin, candidates: Sequence[Candidate], level: float, worths: Vector
    ) -> Vector:
        """How much each worth depends on which trials the twin was fitted to.

        What all of them share is no doubt about which is best, and is taken out.
        """
        refits = [self._worths(twin, candidates, level, refit) for refit in range(_REFITS)]
        off = np.clip(np.array(refits) - worths, -1.0, 1.0)
        off -= np.median(off, axis=1, keepdims=True)
        doubts: Vector = np.sqrt((off**2).mean(axis=0))
        return doubts

    def _residuals(self, twin: Twin, level: float, history: Sequence[Trial]) -> list[Residual]:
        """The twin's error for each trial; for a lost race only by how much it is too high."""
        trials = self.fitting.informative(history)
        simulated = predict(twin, [t.candidate for t in trials], self.aim, level)
        found = []
        for trial, worth in zip(trials, simulated, strict=True):
            if worth is None or worth <= NOTHING:
                continue
            measured, bound = self.aim.measured(trial), self.aim.bound(trial)
            if measured is not None:
                found.append(Residual(trial.candidate, measured - worth))
            elif bound is not None:
                found.append(Residual(trial.candidate, bound - worth, Told.AT_MOST))
        return found

    def _believed(
        self, twin: Twin, level: float, correction: Correction, leader: Trial
    ) -> float | None:
        """What the model believes of the best trial, which was lucky to look the best.

        Expected improvement under noise is over that (Letham, Karrer, Ottoni and Bakshy 2019).
        """
        measured = self.aim.measured(leader)
        (worth,) = predict(twin, [leader.candidate], self.aim, level)
        if measured is None or worth is None or worth <= NOTHING:
            return measured
        return worth + correction.of_measured(Residual(leader.candidate, measured - worth))


def _prospect(candidate: Candidate, worth: float, deviation: float, best: float | None) -> Prospect:
    gain = expected_gain(worth - best, deviation) if best is not None else math.exp(worth)
    return Prospect(candidate, worth, deviation, gain)


def expected_gain(ahead: float, deviation: float) -> float:
    """Expected improvement in logarithms: how much is gained on average, losses counting 0."""
    if deviation <= 0.0:
        return max(ahead, 0.0)
    z = ahead / deviation
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return ahead * 0.5 * math.erfc(-z / math.sqrt(2.0)) + deviation * density


def _told_apart(gain: float) -> float:
    """Its logarithm, the same for gains that only rounding makes different."""
    return round(math.log(gain), DECIMALS) if gain > 0.0 else -math.inf


def _with_note(proposal: Proposal | Enough | None, note: str | None) -> Proposal | Enough | None:
    if note is None or not isinstance(proposal, Proposal):
        return proposal
    return replace(proposal, note=note)
