"""A search by a Gaussian process, begun with designed trials.

Expected improvement under noise: over what the model believes of the best config so far, not over
what that was lucky to show (Letham, Karrer, Ottoni and Bakshy 2019), times the chance that the
candidate meets what is asked at all (Gardner et al. 2014). Each candidate has an error of its own,
which no other one shows; how large such errors are is learned from how wrong predictions were. What
differs from a measured one by less than a capacity is known to gains nothing that could be shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tuner.score.next_load import TOLERANCE, load_plan
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

#: Most trials the model is fitted to: the best and the latest ones.
_BEST, _LATEST = 30, 30
#: Most trials before the model is used, which needs fewer than a density does. Designs come first;
#: where a space has few of them, random trials make up for it.
_STARTUP = 4
#: Trials that the model proposed before the search may end by itself.
LEAST_PROPOSED = 3
#: The error of each candidate alone, which no other one shows, before any prediction was checked;
#: it weighs as much as this many checked predictions.
_PRIOR_ERROR, _PRIOR_COUNT = 0.05, 2
#: How much of a candidate's individual error is its own, and not luck of the measurement: as long
#: as none is measured twice, nothing distinguishes the two.
LASTS = 0.5
#: Before any expected gain was tried, so much of them (logarithms) counts as having come true, or
#: so many of the size of those that were tried: one wide prediction that failed tells little.
GAINS, TRIED = 0.1, 1.5
#: Half width of a 90 % interval in standard deviations.
_Z90 = 1.645
#: Good trials whose neighbours are looked at in a large space.
GOOD = 4
#: Of a gain's logarithm; what lies behind them is rounding, which is not the same each time. So two
#: candidates that are alike but for the names of their models are equals.
DECIMALS = 6
#: A latency this many times its bound shows far too much load, but hardly by how much.
_FAR_OFF = 4.0
#: A saturated server meets the SLOs at about this much less than it answers (a logarithm).
_SATURATED = 0.12
#: Of the model of SLO misses: by how much (a logarithm); a failure counts as at least this much.
_MISSES = Priors((Prior(0.5, 0.7),), noise=Prior(0.05, 0.5), common=0.5)
_FAILED = 0.2


class GaussianStrategy:
    """Designed trials, then by expected improvement under a Gaussian process."""

    at_once: ClassVar[int] = 1

    def __init__(self, space: Space, spec: Spec) -> None:
        search, plan = spec.search, load_plan(spec.workload, spec.objective, spec.slos, spec.shares)
        self.space = space
        self.aim = Aim(spec.objective, spec.slos, plan)
        #: Trials, the current config included, before the model is used.
        self.startup_trials = min(search.startup_trials, _STARTUP)
        self._seed, self._least_gain = search.seed, float(spec.confirm.min_gain)
        self.rates = BatchRates.of(space, spec)
        #: Empty where the current config is the only trial.
        self.designs = designs(space) if spec.budget.trials > 1 else ()
        self._pool = Pool(space)
        self._features = Features(space)

    def lead(self, leads: Sequence[Candidate], history: Sequence[Trial]) -> Proposal:
        """The one of which most is expected; the first, where no first calls were timed."""
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
            return Enough(gain)
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
        """None while nothing is known of any worth."""
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
        if pending:  # believed at their means, under the same kernel: Ginsbourger et al. 2010
            believed_values, _ = self._at(model, pending, where)
            known_values = np.concatenate([values - middle, believed_values])
            where, kinds = [*where, *pending], [*kinds, *[Bound.VALUE] * len(pending)]
            model = posterior(self._observed(where, known_values, kinds), model.kernel)
        mean, deviation = self._at(model, candidates, where)
        deviation = np.hypot(deviation, prediction_error(surprises(self.aim, used)))
        worth = mean + middle + prior(candidates)
        leader = [best[0].candidate]
        believed = float((self._at(model, leader, where)[0] + middle + prior(leader))[0])
        seen = self.aim.measured(best[0])
        believed += 0.0 if seen is None else LASTS * (seen - believed)
        log_gain = log_expected_gain(worth - believed, deviation)
        apart = model.apart(self._features.squares(candidates, where))
        apart = np.hypot(apart, np.subtract.outer(prior(candidates), prior(where))).min(axis=1)
        return _Outlook(worth, deviation, np.where(apart < TOLERANCE, -np.inf, log_gain))

    def _prior(self, used: Sequence[Trial]) -> Callable[[Sequence[Candidate]], Vector]:
        """What is expected of candidates but for a common factor; of a minimised metric nothing."""
        if self.aim.objective.metric is not None:
            return lambda candidates: np.zeros(len(candidates))
        log_rate = self.rates.learned(used)
        return lambda candidates: np.array([log_rate(c) for c in candidates])

    def _log_served(self, candidates: Sequence[Candidate], used: Sequence[Trial]) -> Vector:
        """Logarithm of the chance that the candidate meets the SLOs at some load."""
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
    """What the model expects of candidates: worth, its standard deviation, and expected gain."""

    worth: Vector
    deviation: Vector
    log_gain: Vector


def predicted(aim: Aim, worth: float, deviation: float) -> Predicted:
    """The score, from its logarithm."""
    ends = [aim.score(worth + sign * _Z90 * deviation) for sign in (-1, 1)]
    return Predicted(aim.score(worth), min(ends), max(ends))


def surprises(aim: Aim, history: Sequence[Trial]) -> list[float]:
    """How wrong predictions were, as far as known.

    A lost race shows by how much, at least, a prediction was too high; of one below that load,
    nothing.
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
    """The share of expected gains that came, at most 1: near 1 before any was expected.

    The largest of many expected gains is expected too high; how much shows in what came of those
    that were tried.
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
    """Standard deviation of the error of a candidate alone.

    Args:
        surprises: Measured worth less predicted worth of candidates that were predicted before
            they were measured: residuals of a model that has seen them would look too good.
    """
    total = _PRIOR_COUNT * _PRIOR_ERROR**2 + sum(s * s for s in surprises)
    return math.sqrt(total / (_PRIOR_COUNT + len(surprises)))


def observation(aim: Aim, trial: Trial) -> tuple[float, Bound] | None:
    """What a trial shows about its candidate's worth; None where that is nothing.

    How far a lost race missed the SLO shows roughly at which load it would have met it.
    """
    measured = aim.measured(trial)
    if measured is not None:
        return measured, Bound.VALUE
    bound, score = aim.bound(trial), trial.score
    if trial.state is not TrialState.PRUNED or score is None:
        return None if bound is None else (bound, Bound.AT_MOST)
    if bound is not None and not trial.points:  # it was only looked at
        return bound - _SATURATED, Bound.VALUE
    slo_utilisation = 1.0 + max(score.violation, 0.0)
    over = math.log(min(slo_utilisation, _FAR_OFF)) / STEEPNESS
    if bound is not None:
        return bound - min(over, _SATURATED), Bound.VALUE
    known = Bound.VALUE if slo_utilisation < _FAR_OFF else Bound.AT_MOST
    return aim.worth(score.value) - over, known


def overshoot(aim: Aim, trial: Trial) -> tuple[float, Bound] | None:
    """By how much it missed the SLOs everywhere, a logarithm; None where it may meet them."""
    if aim.measured(trial) is not None:
        return 0.0, Bound.AT_MOST
    if trial.state is TrialState.PRUNED:
        return None
    if trial.score is None:
        return _FAILED, Bound.AT_LEAST
    return math.log1p(max(trial.score.violation, 0.0)), Bound.VALUE


def _used(history: Sequence[Trial], best: Sequence[Trial]) -> list[Trial]:
    """All of a short history; of a long one the best and the latest trials, in order."""
    if len(history) <= _BEST + _LATEST:
        return list(history)
    numbers = {t.number for t in (*best[:_BEST], *history[-_LATEST:])}
    return [t for t in history if t.number in numbers]


def log_expected_gain(ahead: Vector, deviation: Vector) -> Vector:
    """Logarithm of the expected improvement, also where that is next to nothing.

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
