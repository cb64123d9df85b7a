"""The search that asks the scheduler's twin where to look.

A few designed trials, a twin fitted to them, and then the candidate with the largest expected
improvement over the incumbent (Jones, Schonlau and Welch 1998, equation 15): by the twin's
simulation, corrected by what it got wrong so far, with an error bar from both. Where the twin
does not fit, a Gaussian process alone goes on instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tuner.score.trial import NOTHING, Trial, TrialState
from tuner.search.fits import Refusals
from tuner.search.strategies.features import Features
from tuner.search.strategies.gaussian import Observations, Posterior, Prior, Priors, Told, learned
from tuner.search.strategies.gp import (
    DECIMALS,
    GOOD,
    LASTS,
    LEAST_PROPOSED,
    GaussianStrategy,
    own_error,
    predicted,
    surprises,
)
from tuner.search.strategy import Enough, Proposal, chance
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.metrics import GPU_MEMORY
from tuner.spec.model import Spec
from tuner.spec.slo import Goal
from tuner.twin import Twin, Unmodelled, fit, predict

#: Trials a fit uses: the first ones, and the best.
_FIRST, _BEST = 4, 8
#: Trials after the designed ones that are each followed by a fit; by one in two while none fits.
_EACH, _RETRY = 6, 2
#: Points of a trial that a fit uses: those nearest to its capacity.
_POINTS = 2


@dataclass
class Fitting:
    """The twin of a running search: fitted again as trials come, from the history alone.

    The first fit is to the designed trials and takes seconds. Later ones begin where it ended,
    whether it fits or not. They are made at fixed numbers of trials, so that a resumed run has the
    same twin at the same trial, and use the most informative trials only, so that they take no
    longer in a long run.
    """

    space: Space
    spec: Spec
    _fits: dict[int, Twin | Unmodelled] = field(default_factory=dict, init=False)

    def fitted(self, history: Sequence[Trial], first: int) -> Twin | Unmodelled:
        """The twin to use after ``history``; ``first`` trials are the designed ones."""
        count = checkpoint(len(history), first)
        base = self._fit(history[:first], None)
        if isinstance(usable(base), Unmodelled) and count < first + _EACH:
            count -= (count - first) % _RETRY
        start = base if isinstance(base, Twin) else None
        return usable(base if count <= first else self._fit(history[:count], start))

    def news(self, history: Sequence[Trial], first: int) -> str | None:
        """What to report when a fit was made, or when it turns out to be poor."""
        if len(history) < first:
            return None
        now = self.fitted(history, first)
        if len(history) == first:
            return in_words(now)
        before = self.fitted(history[:-1], first)
        return in_words(now) if isinstance(now, Twin) != isinstance(before, Twin) else None

    def informative(self, history: Sequence[Trial]) -> list[Trial]:
        """The first trials and the best, in order, with the points nearest to their capacity."""
        usable = [t for t in history if t.state is not TrialState.FAILED and t.points]
        sign = -1.0 if self.spec.objective.goal is Goal.MAXIMIZE_GOODPUT else 1.0

        def order(trial: Trial) -> tuple[bool, bool, float]:
            assert trial.score is not None
            lost = trial.state is not TrialState.MEASURED
            return not trial.score.feasible, lost, sign * trial.score.value

        best = sorted((t for t in usable[_FIRST:] if t.score), key=order)[:_BEST]
        chosen = {t.number for t in (*usable[:_FIRST], *best)}
        return [_nearest_points(t) for t in usable if t.number in chosen]

    def _fit(self, history: Sequence[Trial], start: Twin | None) -> Twin | Unmodelled:
        count = len(history)
        if count not in self._fits:
            chosen = self.informative(history)
            self._fits[count] = fit(chosen, history, self.space, self.spec, start=start)
        return self._fits[count]


def usable(found: Twin | Unmodelled) -> Twin | Unmodelled:
    """The twin where it fits. One that does not is only where the next fit begins."""
    if isinstance(found, Twin) and found.fitness.reason is not None:
        return Unmodelled(found.fitness.reason)
    return found


def in_words(fitted: Twin | Unmodelled) -> str:
    """A line for the user."""
    if isinstance(fitted, Unmodelled):
        unfit = f"the twin, a simulation of Triton's scheduler, does not fit: {fitted.reason}"
        return f"{unfit}; a Gaussian process goes on, which learns from scores alone"
    return f"twin fitted: {fitted.fitness}"


def checkpoint(count: int, first: int) -> int:
    """How many of ``count`` trials the fit is from: each at first, then ever fewer."""
    if count <= first + _EACH:
        return max(count, first)
    mark = first + _EACH
    while round(mark * 1.25) <= count:
        mark = round(mark * 1.25)
    return mark


def _nearest_points(trial: Trial) -> Trial:
    """Far from its capacity a config's latency says little about where that is."""
    score = trial.score
    if len(trial.points) <= _POINTS or score is None:
        return trial
    levels = [p.level for p in trial.points]
    level = max(levels) if score.best_point is None else levels[score.best_point]
    kept = sorted(sorted(range(len(levels)), key=lambda i: abs(levels[i] / level - 1.0))[:_POINTS])
    best = None if score.best_point is None else kept.index(score.best_point)
    points = tuple(trial.points[i] for i in kept)
    return replace(trial, points=points, score=replace(score, best_point=best))


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
    """What the twin gets wrong: a Gaussian process over its errors, in units of `Aim`.

    Its errors are alike for similar candidates. What it knows nothing about (a backend's parameter)
    may change a score much more than what it simulates, so values never tried remain worth a trial.

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
        left = [c for c in self.designs if c.key not in taken]
        if left and number <= len(self.designs):
            slow = len(left) == 1 and self._simulates
            return Proposal(left[0], informative=True, note=_SLOW if slow else None)
        best = self._leaders(history)
        good = [t.candidate for t in best[:GOOD]]
        drawn = self._pool.draw(chance(self._seed, number), good, taken)
        if not drawn:
            return super().propose(number, history, taken)
        first = len(self.designs) + 1  # the current config is among what is fitted first
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
