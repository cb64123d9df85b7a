"""Slopes of residuals that are simulated: differences, and updates of them between two.

Differences in all directions take as many simulations as there are numbers to fit. Where a step
has led, and what was simulated there, tells the slopes along it: C. G. Broyden 1965, "A class of
methods for solving nonlinear simultaneous equations", Mathematics of Computation 19, 577-593, the
first of its methods.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]


@dataclass
class Slopes:
    """Residuals and slopes as a least-squares search asks for them, along one search.

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
    #: Where it was asked last, and the residuals there.
    _latest: tuple[Vector, Vector] | None = field(default=None, init=False)
    #: The same of slopes, and those.
    _sloped: tuple[Vector, Vector, Matrix] | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    def residuals(self, vector: Vector) -> Vector:
        """Each time a new array: the search weighs it in place."""
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
