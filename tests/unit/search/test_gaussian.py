"""The Gaussian process on functions that are known, without a search."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import ndtr

from tuner.search.strategies.gaussian import (
    Bound,
    Kernel,
    Observations,
    Posterior,
    Priors,
    learned,
    posterior,
)
from tuner.search.strategies.gp import Vector, log_expected_gain

KERNEL = Kernel(np.zeros(1, np.int64), np.array([0.5]), np.array([0.3]), common=0.3, noise=0.05)


def squares(one: Vector, other: Vector) -> Vector:
    """Of points with a row each."""
    return np.stack([(a[:, None] - b[None, :]) ** 2 for a, b in zip(one.T, other.T, strict=True)])


def seen(points: Vector, values: Vector, bounds: Sequence[Bound] | None = None) -> Observations:
    alike = np.zeros(points.shape[1], np.int64)
    return Observations(
        squares(points, points), alike, values, bounds or [Bound.VALUE] * len(points)
    )


def at(model: Posterior, points: Vector, where: Sequence[Sequence[float]]) -> tuple[Vector, Vector]:
    return model.at(squares(np.array(where, float), points))


POINTS = np.linspace(0.0, 1.0, 5)[:, None]


def test_of_values_alone_it_is_the_exact_posterior() -> None:
    """Rasmussen and Williams, equations 2.25, 2.26 and 2.30, written out."""
    values = np.sin(3.0 * POINTS[:, 0])
    model = posterior(seen(POINTS, values), KERNEL)
    prior = KERNEL.covariance(squares(POINTS, POINTS))
    among = prior + 0.05**2 * np.eye(5)
    across = KERNEL.covariance(squares(np.array([[0.3]]), POINTS))
    mean, deviation = at(model, POINTS, [[0.3]])
    assert mean == pytest.approx(across @ np.linalg.solve(among, values))
    left = KERNEL.variance - float((across @ np.linalg.solve(among, across.T))[0, 0])
    assert deviation == pytest.approx([np.sqrt(left)])
    sign, log = np.linalg.slogdet(2.0 * np.pi * among)
    assert sign > 0
    evidence = -0.5 * float(values @ np.linalg.solve(among, values)) - 0.5 * log
    assert model.evidence == pytest.approx(evidence)


def test_a_bound_that_was_expected_changes_nothing() -> None:
    points = np.array([[0.0], [0.5], [1.0]])
    values = np.array([-0.3, 0.5, -0.3])
    without = posterior(seen(points[[0, 2]], values[[0, 2]]), KERNEL)
    with_bound = posterior(seen(points, values, [Bound.VALUE, Bound.AT_MOST, Bound.VALUE]), KERNEL)
    expected, _ = without.at(squares(np.array([[0.4]]), points[[0, 2]]))
    mean, _ = at(with_bound, points, [[0.4]])
    assert mean == pytest.approx(expected, abs=0.005)


def test_a_bound_that_surprises_moves_the_mean_below_it() -> None:
    points = np.array([[0.0], [0.5], [1.0]])
    values = np.array([0.3, -0.2, 0.3])
    upper = posterior(seen(points, values, [Bound.VALUE, Bound.AT_MOST, Bound.VALUE]), KERNEL)
    lower = posterior(seen(points, -values, [Bound.VALUE, Bound.AT_LEAST, Bound.VALUE]), KERNEL)
    mean, _ = at(upper, points, [[0.5]])
    assert -0.25 < mean[0] < -0.1
    assert at(lower, points, [[0.5]])[0] == pytest.approx(-mean)


def test_it_learns_which_parameters_matter_and_how_noisy_values_are() -> None:
    rng = np.random.default_rng(3)
    points = rng.random((40, 3))
    values = 0.5 * np.sin(6.0 * points[:, 1]) + rng.normal(0.0, 0.1, 40)
    model = learned(seen(points, values - np.median(values)), Priors())
    assert model.kernel.noise == pytest.approx(0.1, rel=0.3)
    lengths = model.kernel.lengths
    assert lengths[1] < 0.5 * min(lengths[0], lengths[2])


def test_equal_observations_make_an_equal_model() -> None:
    values = np.array([0.1, 0.0, -0.2, 0.1, 0.3])
    first, again = (learned(seen(POINTS, values), Priors()) for _ in range(2))
    assert first.evidence == again.evidence
    assert first.kernel.lengths.tolist() == again.kernel.lengths.tolist()


def test_log_expected_gain_is_the_logarithm_of_the_expected_gain() -> None:
    ahead = np.array([-0.9, -0.3, 0.0, 0.2])
    log_gain = log_expected_gain(ahead, np.full(4, 0.1))
    z = ahead / 0.1  # Jones, Schonlau and Welch 1998, equation 15
    expected = np.log(0.1 * (z * ndtr(z) + np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)))
    assert log_gain[1:] == pytest.approx(expected[1:])
    assert log_gain[0] == pytest.approx(expected[0], rel=0.02)


def test_next_to_no_gain_still_has_an_order() -> None:
    """Far from the best the expected gain itself would be 0 for all of them."""
    log_gain = log_expected_gain(np.linspace(-5.0, 0.5, 500), np.full(500, 0.1))
    assert np.isfinite(log_gain).all()
    assert (np.diff(log_gain) > 0.0).all()
