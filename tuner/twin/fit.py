"""The twin of one model on one machine: fitted to finished trials, and honest about it.

Least squares over the logarithms of what was simulated and what was measured. The error bar of
a prediction has two parts: how far off the twin was where it could be checked (residuals), and
how much its numbers depend on which trials it was fitted to (a bootstrap over trials, in the
linear approximation around the fit, so that it costs nothing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tuner.run.trial import Trial
from tuner.twin.costs import (
    HANDOFF_S,
    HIGHEST,
    LOWEST,
    PER_OBSERVATION,
    SCALES,
    Costs,
    Figure,
    Vector,
    residuals,
)
from tuner.twin.curve import curve_of
from tuner.twin.model import Unmodelled
from tuner.twin.observation import Observation, Setting, observations_of
from tuner.twin.system import Service, Way

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

#: Load points a fit needs, and of how many trials.
LEAST_POINTS, LEAST_TRIALS = 4, 2
#: Refits on resampled trials.
REFITS = 12
#: A twin whose median error is above fits nothing: another model of the machine is needed. Near
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
#: Half width of a 90 % interval in standard deviations.
Z90 = 1.645
#: Where a search begins: a device, which is regular, or the host's cores, which are not. Share of
#: the device, and spread.
_KINDS = ((0.9, 0.05), (0.1, 0.5))
#: And a client on another machine, or on the same few cores.
_FRONTS_S = (2e-5, 2e-4)


@dataclass(frozen=True)
class _Steps:
    """A part of a fit: some steps of least squares from each place that is left.

    What a simulation shows jumps a little, so derivatives over one distance mislead sooner or
    later, and those over another go on.

    Attributes:
        step: Of the derivatives, in logarithms.
        rounds: Steps at the most.
        kept: So many of the best places are followed further.
    """

    step: float
    rounds: int
    kept: int


#: From nothing, and from an earlier fit.
_COLD = (_Steps(0.2, 4, 3), _Steps(0.08, 6, 2), _Steps(0.2, 6, 1), _Steps(0.08, 6, 1))
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
    observations = observations_of(trials, setting)
    measured = {o.trial for o in observations}
    if len(observations) < LEAST_POINTS or len(measured) < LEAST_TRIALS:
        return Unmodelled(
            "too little that can be simulated was measured so far "
            f"(trials: {len(measured)}, loads: {len(observations)})"
        )
    return fit_observations(observations, setting, start=start, seed=seed)


def fit_observations(
    observations: Sequence[Observation], setting: Setting, *, start: Twin | None, seed: int
) -> Twin:
    curve = curve_of(observations)
    pad_to = 1 if curve is None else curve.pad_to
    cores = math.inf if setting.cores is None else float(setting.cores)

    def costs_of(vector: Vector) -> Costs:
        return Costs.from_vector(vector, pad_to, cores)

    starts = _starts(observations) if start is None else [start.costs.to_vector()]
    for steps in _COLD if start is None else _WARM:
        fits = [_least_squares(x, observations, costs_of, steps) for x in starts]
        fits = sorted(fits, key=lambda r: float(r.cost))[: steps.kept]
        starts = [r.x for r in fits]
    best = fits[0]
    left = residuals(costs_of(best.x), observations)
    vectors = _resampled(best.x, left, best.jac, [o.trial for o in observations], seed)
    noise, fitness = _judged(left, observations)
    return Twin(
        setting=setting,
        costs=costs_of(best.x),
        refits=tuple(costs_of(v) for v in vectors),
        noise=noise,
        fitness=fitness,
    )


def _starts(observations: Sequence[Observation]) -> list[Vector]:
    """From the curve: most of it on the device or beside it, the front costing little or much."""
    curve = curve_of(observations)
    base_s, item_s = (1e-3, 1e-4) if curve is None else (curve.base_s, curve.item_s)
    base_s, item_s = max(base_s, 1e-5), max(item_s, 1e-6)
    fastest_us = min(o.measurement.p50_latency_us for o in observations)
    way = Way(
        base_s=max(0.1 * fastest_us / 1e6, 1e-4),
        spread_s=max(0.1 * fastest_us / 1e6, 1e-4),
        front_more=0.5,
        slept_s=1e-4,
        handoff_s=HANDOFF_S,
    )
    starts = []
    for share, spread in _KINDS:
        for front_s in _FRONTS_S:
            service = Service(
                overlap_base_s=base_s * (1.0 - share),
                overlap_item_s=item_s * (1.0 - share),
                exclusive_base_s=base_s * share,
                exclusive_item_s=item_s * share,
                response_s=2e-5,
                release_s=2e-5,
                spread=spread,
            )
            starts.append(Costs(service, replace(way, front_s=front_s)).to_vector())
    return starts


def _least_squares(
    start: Vector,
    observations: Sequence[Observation],
    costs_of: Callable[[Vector], Costs],
    steps: _Steps,
) -> OptimizeResult:
    from scipy.optimize import least_squares

    def off(vector: Vector) -> Vector:
        return residuals(costs_of(vector), observations)

    def slopes(vector: Vector) -> npt.NDArray[np.float64]:
        return _slopes(off, vector, steps.step)

    inside = np.clip(start, LOWEST + 1e-6, HIGHEST - 1e-6)
    return least_squares(
        off,
        inside,
        slopes,
        bounds=(LOWEST, HIGHEST),
        loss="soft_l1",
        x_scale="jac",
        max_nfev=steps.rounds,
        ftol=_GOOD_ENOUGH,
    )


def _slopes(
    off: Callable[[Vector], Vector], vector: Vector, step: float
) -> npt.NDArray[np.float64]:
    steps = np.where(vector + step < HIGHEST, step, -step)
    moved = [vector, *(vector + np.diag(steps))]
    with ThreadPoolExecutor() as threads:  # the simulation leaves the interpreter to others
        at, *found = threads.map(off, moved)
    return np.stack([(there - at) / far for there, far in zip(found, steps, strict=True)], 1)


def _resampled(
    vector: Vector, left: Vector, slopes: Vector, trials: Sequence[int], seed: int
) -> list[Vector]:
    """Refits on trials drawn with replacement: one Gauss-Newton step from the fit each."""
    rng = np.random.default_rng(seed)
    numbers = sorted(set(trials))
    damping = np.eye(vector.size)
    found = []
    for _ in range(REFITS):
        drawn = rng.choice(numbers, len(numbers))
        weights = np.repeat([float((drawn == t).sum()) for t in trials], PER_OBSERVATION)
        weights = weights / np.sqrt(1.0 + left**2)  # as soft_l1 weighs what is far off
        normal = slopes.T @ (weights[:, None] * slopes) + damping
        step = -np.linalg.solve(normal, slopes.T @ (weights * left))
        found.append(np.clip(vector + np.clip(step, -_TRUST, _TRUST), LOWEST, HIGHEST))
    return found


def _judged(
    left: Vector, observations: Sequence[Observation]
) -> tuple[dict[Figure, float], Fitness]:
    """The noise of each figure, and whether the twin is good enough."""
    table = left.reshape(-1, PER_OBSERVATION)
    fair = np.array([not o.saturated for o in observations])
    informative = np.array([o.tells_throughput for o in observations])
    informative = informative if informative.any() else np.ones_like(informative)
    noise, off = {}, {}
    # Numbers fitted use up as many residuals.
    freedom = np.sqrt(table.size / max(table.size - 2.0 * LOWEST.size, 1.0))
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
