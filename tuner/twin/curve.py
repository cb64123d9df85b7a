"""The time of a batch over its size, straight from Triton's ``batch_stats``: where a fit begins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.twin.observation import Observation

Vector = npt.NDArray[np.float64]
BatchStats = Sequence[tuple[int, int, int]]

_PADDINGS = (2, 4, 8, 16, 32)
#: A padding must explain the times this much better than none.
_BETTER = 0.5


@dataclass(frozen=True)
class Curve:
    """``base_s + item_s * n``, n rounded up to a multiple of ``pad_to``."""

    base_s: float
    item_s: float
    pad_to: int = 1

    def seconds(self, size: int) -> float:
        return self.base_s + self.item_s * self.pad_to * math.ceil(size / self.pad_to)


def curve_of(observations: Sequence[Observation], node: int) -> Curve | None:
    """The curve of one model's batch times; None without observations of it."""
    return curve_through(
        (o.network.nodes[node].instances, model.batch_stats)
        for o in observations
        if (model := o.models[node]) is not None
    )


def curve_through(counted: Iterable[tuple[int, BatchStats]]) -> Curve | None:
    """The least-squares line through the mean time of each batch size; None without any.

    Only from where the fewest instances were, which wait least for one another.

    Args:
        counted: Instances, and batch size, executions and nanoseconds of them all.
    """
    known = [(instances, found) for instances, found in counted if found]
    if not known:
        return None
    fewest = min(instances for instances, _ in known)
    rows = [row for instances, found in known if instances == fewest for row in found]
    sizes, counts, total_ns = (np.array(column, float) for column in zip(*rows, strict=True))
    seconds = total_ns / counts / 1e9
    pad_to = 1
    best = line = _line(sizes, seconds, counts)
    for padding in _PADDINGS if np.unique(sizes).size > 3 else ():
        if padding > sizes.max():
            break
        other = _line(np.ceil(sizes / padding) * padding, seconds, counts)
        if other[2] < _BETTER * line[2] and other[2] < best[2]:
            best, pad_to = other, padding
    return Curve(best[0], best[1], pad_to)


def _line(sizes: Vector, seconds: Vector, counts: Vector) -> tuple[float, float, float]:
    """Base, slope (neither negative) and squared error, weighted by executions."""
    weights = np.sqrt(counts)
    from scipy.optimize import nnls

    matrix = np.stack([np.ones_like(sizes), sizes], axis=1) * weights[:, None]
    (base, slope), error = nnls(matrix, seconds * weights)
    return float(base), float(slope), float(error) ** 2
