"""A search by a Gaussian process, after designed trials.

The search maximizes the expected improvement under noise: over the model's mean for the best config
so far, not over its measured value, which may be high by chance (Letham, Karrer, Ottoni and Bakshy
2019), times the probability that the candidate meets the SLOs at all (Gardner et al. 2014). Each
candidate has an individual error, which other candidates do not predict; the size of these errors
is estimated from earlier predictions. A candidate that differs from a measured one by less than the
error of a capacity has no gain that a measurement could show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tuner.score.next_load import TOLERANCE
from tuner.score.trial import STEEPNESS, Aim, Predicted, Trial, TrialState
from tuner.search.fits import Refusals
from tuner.search.incumbent import leaders
from tuner.search.strategies.batch_rates import BatchRates
from tuner.search.strategies.designs import designs
from tuner.search.strategies.features import Features
from tuner.search.strategies.gaussian import (
    Bound,
    Observations,
    Posterior,
    Prior,
    Priors,
    learned,
    posterior,
)
from tuner.search.strategies.pool import Pool
from tuner.search.strategies.unguided import draw_new
from tuner.search.strategy import Enough, Proposal, chance
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec

Vector = npt.NDArray[np.float64]

#: Most trials for the model: this many of the best ones and of the latest ones.
_BEST, _LATEST = 30, 30
#: Most trials before the model is used, which needs fewer than a density estimate does. Designs
#: come first, then random trials where a space has few designs.
_STARTUP = 4
#: Fewest trials proposed by the model before the search may end by itself.
LEAST_PROPOSED = 3
#: Prior standard deviation of the individual error of a candidate, and its weight as a number of
#: checked predictions.
_PRIOR_ERROR, _PRIOR_COUNT = 0.05, 2
#: Prior sum of expected gains (logarithms) that count as realized: the first value, or this many
#: times the mean expected gain if larger, since one wide prediction that failed proves little.
GAINS, TRIED = 0.1, 1.5
#: Factor for the model's standard deviations, which are too wide: over five recorded tables (48
#: searches, 342 predictions), 96% of its 90% intervals contained the true value.
SURER = 0.75
#: Half width of a 90% interval in standard deviations.
_Z90 = 1.645
#: Number of best trials whose neighbors are candidates in a large space.
GOOD = 4
#: Decimals of a gain's logarithm that count: further ones are rounding errors, which vary. So two
#: candidates that differ in nothing but the names of their models are equal.
DECIMALS = 6
#: A latency above this many times its bound hardly shows how much lower the capacity is.
_FAR_OFF = 4.0
#: Logarithm of a saturated server's throughput over the load at which it meets the SLOs, about.
_SATURATED = 0.12
#: Priors for the model of SLO misses (logarithms), and the least miss of a failed trial.
_MISSES = Priors((Prior(0.5, 0.7),), noise=Prior(0.05, 0.5), common=0.5)
_FAILED = 0.2


class GaussianStrategy:
    """Designed trials, then by expected improvement under a Gaussian process."""

    at_once: ClassVar[int] = 1

    def __init__(self, space: Space, spec: Spec) -> None:
        search = spec.search
        self.space = space
        self.aim = Aim(spec.objective)
        #: Trials, the current config included, before the model is used.
        self.startup_trials = min(search.startup_trials, _STARTUP)
        self._seed, self._least_gain = search.seed, float(spec.confirm.min_gain)
        self.rates = BatchRates.of(space, spec)
        #: Empty where the current config is the only trial.
        self.designs = designs(space) if spec.budget.trials > 1 else ()
        self._pool = Pool(space)
        self._features = Features(space)

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        """The lead with the highest expected capacity; the first one without timed first calls."""
        log_rate, best = self.rates.learned(history), self._leaders(history)
        if self.rates.profile(history) is None:
            return Proposal(leads[0], informative=True)
        chosen = max(leads, key=lambda c: round(log_rate(c), DECIMALS))
        outdone = bool(best) and self.rates.outdone(history, best[0].candidate)(chosen)
        return Proposal(chosen, informative=True, outdone=outdone)

    def propose(
        self,
        number: int,
        history: Sequence[Trial],
        taken: Set[str],
        pending: Sequence[Candidate] = (),
    ) -> Proposal | Enough | None:
        designed = [c for c in self.designs if c.key not in taken]
        if designed and number <= len(self.designs):
            return Proposal(designed[0], informative=True)
        rng = chance(self._seed, number)
        if len(history) < self.startup_trials:
            return draw_new(self.space, rng, taken)
        best = self._leaders(history)
        refusals = Refusals(history)
        drawn = self._pool.draw(rng, [t.candidate for t in best[:GOOD]], taken)
        left = [c for c in drawn if not refusals.forbids(c)]
        too_slow = self.rates.too_slow(history)
        if left and not (left := [c for c in left if not too_slow(c)]):
            return None
        if not left:
            return draw_new(self.space, rng, taken)
        rng.shuffle(left)  # among equals chance decides
        used = _used(history, best)
        served = self._log_served(left, used)
        outlook = self._outlook(left, used, best, pending) if best else None
        promise = served if outlook is None else served + outlook.log_gain
        chosen = int(np.argmax(np.round(promise, DECIMALS)))
        if outlook is None:
            return Proposal(left[chosen])
        gain, first = math.exp(promise[chosen]), max(len(self.designs) + 1, self.startup_trials)
        gain *= came_true(self.aim, history)
        if number >= first + LEAST_PROPOSED and gain < self._least_gain:
            return Enough()
        expected = float(outlook.worth[chosen]), float(outlook.deviation[chosen])
        return Proposal(left[chosen], predicted=predicted(self.aim, *expected))

    def _leaders(self, history: Sequence[Trial]) -> list[Trial]:
        return leaders(history, self.aim.objective.goal, self.space.current)

    def _outlook(
        self,
        candidates: Sequence[Candidate],
        used: Sequence[Trial],
        best: Sequence[Trial],
        pending: Sequence[Candidate],
    ) -> _Outlook | None:
        """What the model expects of ``candidates``; None without any observation of a worth."""
        known = [
            (t.candidate, observed)
            for t in used
            if (observed := observation(self.aim, t)) is not None
        ]
        if not known:
            return None
        where, prior = [c for c, _ in known], self._prior(used)
        values = np.array([value for _, (value, _) in known]) - prior(where)
        kinds = [kind for _, (_, kind) in known]
        exact = values[[k is Bound.VALUE for k in kinds]]
        middle = float(np.median(exact)) if exact.size else float(values.max())
        model = self._learned(where, values - middle, kinds, Priors())
        if pending:  # observed at their means, with the same kernel: Ginsbourger et al. 2010
            believed_values, _ = self._at(model, pending, where)
            known_values = np.concatenate([values - middle, believed_values])
            where, kinds = [*where, *pending], [*kinds, *[Bound.VALUE] * len(pending)]
            model = posterior(self._observed(where, known_values, kinds), model.kernel)
        mean, deviation = self._at(model, candidates, where)
        deviation = SURER * np.hypot(deviation, prediction_error(surprises(self.aim, used)))
        worth = mean + middle + prior(candidates)
        leader = [best[0].candidate]
        believed = float((self._at(model, leader, where)[0] + middle + prior(leader))[0])
        log_gain = log_expected_gain(worth - believed, deviation)
        apart = model.apart(self._features.squares(candidates, where))
        apart = np.hypot(apart, np.subtract.outer(prior(candidates), prior(where))).min(axis=1)
        return _Outlook(worth, deviation, np.where(apart < TOLERANCE, -np.inf, log_gain))

    def _prior(self, used: Sequence[Trial]) -> Callable[[Sequence[Candidate]], Vector]:
        """The expected worth of candidates but for a constant; 0 for a minimized metric."""
        if self.aim.objective.metric is not None:
            return lambda candidates: np.zeros(len(candidates))
        log_rate = self.rates.learned(used)
        return lambda candidates: np.array([log_rate(c) for c in candidates])

    def _log_served(self, candidates: Sequence[Candidate], used: Sequence[Trial]) -> Vector:
        """Logarithm of the probability that each candidate meets the SLOs at some load."""
        from scipy.special import log_ndtr

        known = [(t.candidate, miss) for t in used if (miss := overshoot(self.aim, t)) is not None]
        kinds = [kind for _, (_, kind) in known]
        if all(kind is Bound.AT_MOST for kind in kinds):
            return np.zeros(len(candidates))
        where = [c for c, _ in known]
        values = np.array([value for _, (value, _) in known])
        model = self._learned(where, values, kinds, _MISSES)
        mean, deviation = self._at(model, candidates, where)
        chances: Vector = log_ndtr(-mean / deviation)
        return chances

    def _learned(
        self, where: Sequence[Candidate], values: Vector, kinds: Sequence[Bound], priors: Priors
    ) -> Posterior:
        return learned(self._observed(where, values, kinds), priors)

    def _observed(
        self, where: Sequence[Candidate], values: Vector, kinds: Sequence[Bound]
    ) -> Observations:
        squares = self._features.squares(where, where)
        return Observations(squares, np.zeros(squares.shape[0], np.int64), values, kinds)

    def _at(
        self, posterior: Posterior, candidates: Sequence[Candidate], where: Sequence[Candidate]
    ) -> tuple[Vector, Vector]:
        return posterior.at(self._features.squares(candidates, where))


@dataclass(frozen=True)
class _Outlook:
    """What the model expects of each candidate; each has the shape (candidates,).

    Attributes:
        worth: Mean of the worth.
        deviation: Standard deviation of the worth.
        log_gain: Logarithm of the expected gain; minus infinity where none could be shown.
    """

    worth: Vector
    deviation: Vector
    log_gain: Vector


def predicted(aim: Aim, worth: float, deviation: float) -> Predicted:
    """The predicted score with its 90% interval, from mean and deviation of the worth."""
    ends = [aim.score(worth + sign * _Z90 * deviation) for sign in (-1, 1)]
    return Predicted(aim.score(worth), min(ends), max(ends))


def surprises(aim: Aim, history: Sequence[Trial]) -> list[float]:
    """The errors of earlier predictions: measured worth less predicted worth.

    A lost race shows the least error of a prediction that was too high, and nothing about a
    prediction below that load.
    """
    surprises_ = []
    for trial in history:
        if trial.predicted is None:
            continue
        predicted = aim.worth(trial.predicted.value)
        measured, bound = aim.measured(trial), aim.bound(trial)
        if measured is not None:
            surprises_.append(measured - predicted)
        elif bound is not None and predicted > bound:
            surprises_.append(bound - predicted)
    return surprises_


def came_true(aim: Aim, history: Sequence[Trial]) -> float:
    """The share of expected gains that were realized, at most 1; 1 before the first.

    The largest of many expected gains is too high on average. The realized gains of earlier
    proposals show by how much.
    """
    best, expected, came = -math.inf, list[float](), 0.0
    for trial in history:
        measured = aim.measured(trial)
        if trial.predicted is not None and math.isfinite(best):
            ends = [aim.worth(s) for s in (trial.predicted.low, trial.predicted.high)]
            deviation = max(abs(ends[1] - ends[0]) / (2.0 * _Z90), 1e-6)
            ahead = aim.worth(trial.predicted.value) - best
            gain = log_expected_gain(np.array([ahead]), np.array([deviation]))[0]
            expected.append(math.exp(gain))
            came += max(0.0 if measured is None else measured - best, 0.0)
        if measured is not None:
            best = max(best, measured)
    before = max(GAINS, TRIED * fmean(expected or [0.0]))
    return min((before + came) / (before + sum(expected)), 1.0)


def prediction_error(surprises: Sequence[float]) -> float:
    """Standard deviation of the individual error of a candidate.

    Args:
        surprises: Measured worth less the worth predicted before the measurement: residuals of a
            model fitted to the same trials would be too small.
    """
    total = _PRIOR_COUNT * _PRIOR_ERROR**2 + sum(s * s for s in surprises)
    return math.sqrt(total / (_PRIOR_COUNT + len(surprises)))


def observation(aim: Aim, trial: Trial) -> tuple[float, Bound] | None:
    """What a trial shows about its candidate's worth; None where it shows nothing.

    The miss of a lost race shows roughly which lower load would have met the SLO.
    """
    measured = aim.measured(trial)
    if measured is not None:
        return measured, Bound.VALUE
    bound, score = aim.bound(trial), trial.score
    if trial.state is not TrialState.PRUNED or score is None:
        return None if bound is None else (bound, Bound.AT_MOST)
    if bound is not None and not trial.points:  # only a look
        return bound - _SATURATED, Bound.VALUE
    slo_utilisation = 1.0 + max(score.violation, 0.0)
    over = math.log(min(slo_utilisation, _FAR_OFF)) / STEEPNESS
    if bound is not None:
        return bound - min(over, _SATURATED), Bound.VALUE
    known = Bound.VALUE if slo_utilisation < _FAR_OFF else Bound.AT_MOST
    return aim.worth(score.value) - over, known


def overshoot(aim: Aim, trial: Trial) -> tuple[float, Bound] | None:
    """Logarithm of one plus the violation, for a trial that met the SLOs at no load.

    At most 0 for a trial that met them; None for a pruned trial, which may meet them.
    """
    if aim.measured(trial) is not None:
        return 0.0, Bound.AT_MOST
    if trial.state is TrialState.PRUNED:
        return None
    if trial.score is None:
        return _FAILED, Bound.AT_LEAST
    return math.log1p(max(trial.score.violation, 0.0)), Bound.VALUE


def _used(history: Sequence[Trial], best: Sequence[Trial]) -> list[Trial]:
    """All trials of a short history; of a long one, the best and the latest trials, in order."""
    if len(history) <= _BEST + _LATEST:
        return list(history)
    numbers = {t.number for t in (*best[:_BEST], *history[-_LATEST:])}
    return [t for t in history if t.number in numbers]


def log_expected_gain(ahead: Vector, deviation: Vector) -> Vector:
    """Logarithm of the expected improvement, accurate also for very small ones.

    ``ahead``: mean of the improvement; ``deviation``: its standard deviation; of equal shapes.
    Ament et al. 2023, "Unexpected Improvements to Expected Improvement", equation 9, with the
    asymptote where the difference of the two terms is lost in rounding.
    """
    from scipy.special import log_ndtr

    z = ahead / deviation
    log_density = -0.5 * z**2 - 0.5 * math.log(2.0 * math.pi)
    low = np.minimum(z, 0.0)
    ratio = np.exp(log_ndtr(low) - (-0.5 * low**2 - 0.5 * math.log(2.0 * math.pi)))
    near = np.log(np.maximum(1.0 + low * ratio, 1e-300)) + log_density
    far = log_density - 2.0 * np.log(np.maximum(-z, 1.0))
    above = np.log(np.maximum(z * np.exp(log_ndtr(z)) + np.exp(log_density), 1e-300))
    log_gain = np.where(z > 0.0, above, np.where(z < -10.0, far, near))
    total: Vector = log_gain + np.log(deviation)
    return total
