"""Slopes by differences where they are due, and by Broyden's update in between."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.twin.fitting import Slopes, Vector, updated

#: Residuals that are straight lines, whose slopes any difference shows exactly.
LINES = np.array([[1.0, 2.0], [0.0, -3.0], [4.0, 0.5]])
HIGHEST = np.array([10.0, 10.0])


class Simulated:
    """Remembers at which vectors it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, ...]] = []

    def __call__(self, vector: Vector) -> Vector:
        self.asked.append(tuple(vector))
        assert (vector <= HIGHEST).all()
        found: Vector = LINES @ vector
        return found


def test_differences_show_the_slopes_also_at_the_upper_end() -> None:
    for where in (np.array([1.0, 2.0]), HIGHEST):
        found = Slopes(Simulated(), 0.5, HIGHEST, every=1).slopes(where)
        assert found == pytest.approx(LINES)


def test_slopes_are_simulated_at_the_first_of_so_many_places_only() -> None:
    off = Simulated()
    sloped = Slopes(off, 0.5, HIGHEST, every=3)
    counts = []
    for at in range(6):
        where = np.array([float(at), 1.0])
        sloped.residuals(where)
        assert sloped.slopes(where) == pytest.approx(LINES)
        counts.append(len(off.asked))
        off.asked.clear()
    assert counts == [3, 1, 1, 3, 1, 1]


def test_an_update_explains_the_step_and_leaves_the_directions_beside_it() -> None:
    slopes, moved, changed = LINES, np.array([2.0, 0.0]), np.array([1.0, 1.0, 1.0])
    found = updated(slopes, moved, changed)
    assert found @ moved == pytest.approx(changed)
    assert found[:, 1] == pytest.approx(LINES[:, 1])


def test_no_step_leaves_the_slopes_as_they_are() -> None:
    assert updated(LINES, np.zeros(2), np.zeros(3)) == pytest.approx(LINES)


def test_a_search_may_write_into_what_it_is_given() -> None:
    sloped, where = Slopes(Simulated(), 0.5, HIGHEST, every=2), np.array([1.0, 1.0])
    for given in (sloped.residuals(where), sloped.slopes(where)):
        given.fill(0.0)
    beside = np.array([2.0, 1.0])
    assert sloped.residuals(where) == pytest.approx(LINES @ where)
    assert sloped.slopes(beside) == pytest.approx(LINES)
