"""The twin of one model on one machine: fitted to finished trials, with its own error.

Least squares over the logarithms of what was simulated and what was measured. The error bar of
a prediction has two parts: how far off the twin was where it could be checked (residuals), and
how much its numbers depend on which trials it was fitted to (a bootstrap over trials, in the
linear approximation around the fit, so that it costs nothing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tuner.score.trial import Trial
from tuner.twin.costs import (
    HANDOFF_S,
    SCALES,
    Costs,
    Curve,
    Figure,
    Vector,
    curve_of,
    limits,
    residuals,
)
from tuner.twin.model import Unmodelled
from tuner.twin.observation import Observation, Setting, observations_of
from tuner.twin.system import Lock, Service, Way

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult


Matrix = npt.NDArray[np.float64]


@dataclass
class Slopes:
    """Simulated residuals and their slopes along one least-squares search.

    Differences in all directions take as many simulations as there are numbers to fit. Where a step
    has led, and what was simulated there, tells the slopes along it: C. G. Broyden 1965, "A class
    of methods for solving nonlinear simultaneous equations", Mathematics of Computation 19,
    577-593, the first of its methods.

    Attributes:
        off: The residuals at a vector, simulated; called from several threads.
        step: How far apart differences are taken.
        highest: Of each number; a difference is taken downwards where it would go beyond.
        every: Differences are taken at the first of so many places, and updated at the others.
    """

    off: Callable[[Vector], Vector]
    step: float
    highest: Vector
    every: int
    _latest: tuple[Vector, Vector] | None = field(default=None, init=False)
    _sloped: tuple[Vector, Vector, Matrix] | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    def residuals(self, vector: Vector) -> Vector:
        # Each time a new array: the search weighs it in place.
        return self._left(vector).copy()

    def slopes(self, vector: Vector) -> Matrix:
        """One row for each residual, one column for each number; likewise."""
        left = self._left(vector)
        if self._sloped is None or self._count % self.every == 0:
            found = self._differences(vector, left)
        else:
            where, before, slopes = self._sloped
            found = updated(slopes, vector - where, left - before)
        self._count += 1
        self._sloped = vector.copy(), left, found
        return found.copy()

    def _left(self, vector: Vector) -> Vector:
        """Slopes are asked for where residuals were just before."""
        if self._latest is None or not np.array_equal(self._latest[0], vector):
            self._latest = vector.copy(), self.off(vector)
        return self._latest[1]

    def _differences(self, vector: Vector, left: Vector) -> Matrix:
        steps = np.where(vector + self.step < self.highest, self.step, -self.step)
        with ThreadPoolExecutor() as threads:  # the simulation leaves the interpreter to others
            there = list(threads.map(self.off, vector + np.diag(steps)))
        return np.stack([(far - left) / step for far, step in zip(there, steps, strict=True)], 1)


def updated(slopes: Matrix, moved: Vector, changed: Vector) -> Matrix:
    """The slopes nearest to the given ones that explain how the residuals changed."""
    square = float(moved @ moved)
    if square == 0.0:
        return slopes
    return slopes + np.outer((changed - slopes @ moved) / square, moved)


#: Load points a fit needs, and of how many trials.
LEAST_POINTS, LEAST_TRIALS = 4, 2
#: Refits on resampled trials.
REFITS = 12
#: A twin whose median error is larger does not fit: another model of the machine is needed. Near
#: its capacity a config's p99 grows ten times as fast as the load, and so do its errors.
MOST_OFF: Mapping[Figure, float] = {
    Figure.THROUGHPUT: 0.20,
    Figure.P50: 0.25,
    Figure.P99: 0.40,
}
#: A step that improves the fit by less, as a share, is the last.
_GOOD_ENOUGH = 3e-3
#: A resampled fit is trusted this far from the fit, in logarithms.
_TRUST = 0.7
#: Where a fit begins: a client on another machine, or on the same few cores.
_FRONTS_S = (2e-5, 2e-4)


@dataclass(frozen=True)
class _Kind:
    """A kind of model: the device's share of a batch, its regularity, and who waits for whom.

    The measured time of a batch includes its waits for other models: only ``scale`` is its own.
    """

    share: float
    spread: float
    lock: Lock = Lock.DEVICE
    scale: float = 1.0


#: Where a fit begins: a device, which is regular, or the host's cores, which are not; and, beside
#: other models, a device of its own, or something that each instance waits for by itself.
_KINDS = (
    _Kind(0.9, 0.05),
    _Kind(0.1, 0.5),
    _Kind(0.9, 0.05, scale=0.5),
    _Kind(0.9, 0.05, scale=0.2),
    _Kind(0.9, 0.05, Lock.MODEL),
    _Kind(0.9, 0.05, Lock.NONE),
)
#: When kinds are chosen one model after the other, the first may be given a device of its own to
#: explain waiting that the others cause. So the case that all share one device is fitted too, and
#: the better fit decides.
_SHARED = tuple(kind for kind in _KINDS if kind.lock is Lock.DEVICE)


@dataclass(frozen=True)
class _Steps:
    """A part of a fit: some steps of least squares from each place that is left.

    What a simulation shows jumps a little, so derivatives over one distance mislead sooner or
    later, and those over another go on.

    Attributes:
        step: Of the derivatives, in logarithms.
        rounds: Most steps.
        kept: This many of the best places are followed further.
        every: See `Slopes`. To tell places apart takes few differences.
    """

    step: float
    rounds: int
    kept: int
    every: int = 1


#: From nothing, and from an earlier fit.
_COLD = (_Steps(0.2, 4, 3, every=4), _Steps(0.08, 6, 2), _Steps(0.2, 6, 1), _Steps(0.08, 6, 1))
_WARM = (_Steps(0.2, 3, 1), _Steps(0.08, 3, 1))


@dataclass(frozen=True)
class Fitness:
    """How well the twin shows what it was fitted to.

    Attributes:
        off: Median of the absolute error of each figure, as a share.
        reason: Why it cannot be used; None when it can.
    """

    off: Mapping[Figure, float]
    reason: str | None

    def __str__(self) -> str:
        shown = {"throughput": Figure.THROUGHPUT, "p50": Figure.P50, "p99": Figure.P99}
        each = ", ".join(f"{name} {self.off[figure]:.1%}" for name, figure in shown.items())
        return f"{each} off in the median of what it was fitted to"


@dataclass(frozen=True)
class Twin:
    """A fitted twin.

    Attributes:
        costs: The best fit.
        refits: The same from resampled trials.
        noise: Standard deviation of the logarithm of each figure that no fit explains.
    """

    setting: Setting
    costs: Costs
    refits: tuple[Costs, ...]
    noise: Mapping[Figure, float]
    fitness: Fitness


def fit(
    trials: Sequence[Trial], setting: Setting, *, start: Twin | None = None, seed: int = 0
) -> Twin | Unmodelled:
    """Fits the twin to finished trials.

    Args:
        trials: Finished ones; those the twin cannot simulate are left out.
        setting: Of the run.
        start: An earlier fit to begin with: a few trials more then take a fraction of the time.
        seed: Of the resampling.
    """
    if isinstance(setting.plan, Unmodelled):
        return setting.plan
    observations = observations_of(trials, setting)
    if len(setting.asked) > 1 and any(t.due_s is None for o in observations for t in o.traffics):
        return Unmodelled("closed loops of several streams are not simulated")
    measured = {o.trial for o in observations}
    if len(observations) < LEAST_POINTS or len(measured) < LEAST_TRIALS:
        return Unmodelled(
            "too few measurements so far can be simulated "
            f"(trials: {len(measured)}, loads: {len(observations)})"
        )
    return fit_observations(observations, setting, start=start, seed=seed)


def fit_observations(
    observations: Sequence[Observation], setting: Setting, *, start: Twin | None, seed: int
) -> Twin:
    cores = math.inf if setting.cores is None else float(setting.cores)
    begun = [start.costs] if start is not None else _starts(observations, cores)
    starts = [(costs.to_vector(), costs) for costs in begun]
    for steps in _COLD if start is None else _WARM:
        fits = [(_least_squares(x, like, observations, steps), like) for x, like in starts]
        fits = sorted(fits, key=lambda pair: float(pair[0].cost))[: steps.kept]
        starts = [(found.x, like) for found, like in fits]
    best, like = fits[0]
    costs = Costs.from_vector(best.x, like.services, cores)
    left = residuals(costs, observations)
    vectors = _resampled(best.x, left, best.jac, observations, seed)
    noise, fitness = _judged(left, observations)
    return Twin(
        setting=setting,
        costs=costs,
        refits=tuple(Costs.from_vector(v, costs.services, cores) for v in vectors),
        noise=noise,
        fitness=fitness,
    )


def _starts(observations: Sequence[Observation], cores: float) -> list[Costs]:
    """From the curves: most of it on the device or beside it, the front costing little or much.

    Of several models each may be of another kind: what shows the measured loads best, of all kinds
    and of those that share a device.
    """
    curves = [curve_of(observations, node) for node in range(len(observations[0].models))]
    fastest_us = min(o.measurement.p50_latency_us for o in observations)
    way = Way(
        base_s=max(0.1 * fastest_us / 1e6, 1e-4),
        spread_s=max(0.1 * fastest_us / 1e6, 1e-4),
        front_more=0.5,
        slept_s=1e-4,
        handoff_s=HANDOFF_S,
        cores=cores,
    )
    starts = [
        Costs(tuple(_service(curve, kind) for curve in curves), replace(way, front_s=front_s))
        for kind in _KINDS[:2]
        for front_s in _FRONTS_S
    ]
    if len(curves) == 1:
        return starts
    found = [_sorted_out(costs, curves, observations, _KINDS) for costs in starts]
    best = int(np.argmin([_loss(residuals(costs, observations)) for costs in found]))
    shared = _sorted_out(starts[best], curves, observations, _SHARED)
    return list(dict.fromkeys((found[best], shared)))


def _sorted_out(
    costs: Costs,
    curves: Sequence[Curve | None],
    observations: Sequence[Observation],
    kinds: Sequence[_Kind],
) -> Costs:
    """The same with the best kind of each model, one model after the other."""
    for node, curve in (*enumerate(curves), *enumerate(curves)):
        before, behind = costs.services[:node], costs.services[node + 1 :]
        others = [replace(costs, services=(*before, _service(curve, k), *behind)) for k in kinds]
        with ThreadPoolExecutor() as threads:
            lost = list(threads.map(lambda c: _loss(residuals(c, observations)), others))
        costs = others[int(np.argmin(lost))]
    return costs


def _loss(left: Vector) -> float:
    """soft_l1, as the fit has it."""
    return float(np.sum(np.sqrt(1.0 + left**2) - 1.0))


def _service(curve: Curve | None, kind: _Kind) -> Service:
    base_s, item_s = (1e-3, 1e-4) if curve is None else (curve.base_s, curve.item_s)
    base_s, item_s = max(kind.scale * base_s, 1e-5), max(kind.scale * item_s, 1e-6)
    return Service(
        overlap_base_s=base_s * (1.0 - kind.share),
        overlap_item_s=item_s * (1.0 - kind.share),
        exclusive_base_s=base_s * kind.share,
        exclusive_item_s=item_s * kind.share,
        response_s=2e-5,
        release_s=2e-5,
        pad_to=1 if curve is None else curve.pad_to,
        spread=kind.spread,
        lock=kind.lock,
    )


def _least_squares(
    start: Vector, like: Costs, observations: Sequence[Observation], steps: _Steps
) -> OptimizeResult:
    from scipy.optimize import least_squares

    def off(vector: Vector) -> Vector:
        return residuals(Costs.from_vector(vector, like.services, like.way.cores), observations)

    lowest, highest = limits(len(observations[0].models))
    inside = np.clip(start, lowest + 1e-6, highest - 1e-6)
    asked = Slopes(off, steps.step, highest, steps.every)
    return least_squares(
        asked.residuals,
        inside,
        asked.slopes,
        bounds=(lowest, highest),
        loss="soft_l1",
        x_scale="jac",
        max_nfev=steps.rounds,
        ftol=_GOOD_ENOUGH,
    )


def _resampled(
    vector: Vector, left: Vector, slopes: Vector, observations: Sequence[Observation], seed: int
) -> list[Vector]:
    """Refits on trials drawn with replacement: one Gauss-Newton step from the fit each."""
    rng = np.random.default_rng(seed)
    trials = [o.trial for o in observations]
    each = left.size // len(trials)
    lowest, highest = limits(len(observations[0].models))
    numbers = sorted(set(trials))
    damping = np.eye(vector.size)
    found = []
    for _ in range(REFITS):
        drawn = rng.choice(numbers, len(numbers))
        weights = np.repeat([float((drawn == t).sum()) for t in trials], each)
        weights = weights / np.sqrt(1.0 + left**2)  # as soft_l1 weighs what is far off
        normal = slopes.T @ (weights[:, None] * slopes) + damping
        step = -np.linalg.solve(normal, slopes.T @ (weights * left))
        found.append(np.clip(vector + np.clip(step, -_TRUST, _TRUST), lowest, highest))
    return found


def _judged(
    left: Vector, observations: Sequence[Observation]
) -> tuple[dict[Figure, float], Fitness]:
    """The noise of each figure, and whether the twin is good enough."""
    count, streams = len(observations), len(observations[0].traffics)
    table = left.reshape(count, -1)[:, : streams * len(Figure)].reshape(count, streams, -1)
    fair = np.array([[not saturated for saturated in o.saturated] for o in observations])
    informative = np.array([[o.tells_throughput] * streams for o in observations])
    informative = informative if informative.any() else np.ones_like(informative)
    noise, off = {}, {}
    # Numbers fitted use up as many residuals.
    numbers = limits(len(observations[0].models))[0].size
    freedom = np.sqrt(left.size / max(left.size - 2.0 * numbers, 1.0))
    for column, figure in enumerate(Figure):
        rows = table[informative if figure is Figure.THROUGHPUT else fair, column]
        errors = np.abs(rows * SCALES[figure])
        off[figure] = float(np.expm1(np.median(errors))) if errors.size else float("nan")
        # Of a normal distribution four in five are within 1.2816 standard deviations; where a few
        # are far off, this says so and the median would not.
        noise[figure] = float(np.quantile(errors, 0.8) / 1.2816 * freedom) if errors.size else 1.0
    worst = [f for f, most in MOST_OFF.items() if not off[f] <= most]
    reason = None
    if worst:
        figure = worst[0]
        reason = (
            f"the simulated {figure.value} is {off[figure]:.0%} off in the median "
            f"of {len(observations)} load points"
        )
    return noise, Fitness(off, reason)
