"""MSER-5: where the start of a measurement is over."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.load.latency.settling import settled_from

NOISE = np.random.default_rng(5)


def test_a_slow_start_is_left_out() -> None:
    values = np.append(np.linspace(20.0, 2.0, 100), 1.0 + 0.1 * NOISE.standard_normal(900))
    assert settled_from(values) == pytest.approx(100, abs=10)


def test_what_is_steady_from_the_beginning_is_left_whole() -> None:
    found = [settled_from(NOISE.exponential(size=1000)) for _ in range(50)]
    assert np.median([0 if f is None else f for f in found]) <= 100


def test_what_only_settles_in_the_second_half_does_not_tell() -> None:
    assert settled_from(np.append(np.full(700, 9.0), np.full(300, 1.0))) is None
    assert settled_from(np.ones(12)) is None
