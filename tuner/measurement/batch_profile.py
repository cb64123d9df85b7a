"""What batches of a model take, by size and by how many instances work at once.

The first calls of a model that was just loaded show that, before any load. A batch that takes t by
itself, and beside one more instance until both are done t + e, has a part e that no two instances
do at once: the device's, or a CPU's that all share. So k instances answer batches of n at
k n / max(t, k e), and a request waits for at most one batch before its own: on an idle instance for
none, else until the next one is free (Nexus, Shen et al., SOSP 2019, section 4.1; Clockwork,
Gujarati et al., OSDI 2020, section 3: what a batch takes is predictable).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

import numpy as np
import numpy.typing as npt

from tuner.facts import Facts

Sizes = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


#: Of the rate of batches, where no time is left to wait for anything.
LEAST_SHARE = 0.1


@dataclass(frozen=True)
class BatchCall(Facts):
    """How long one batch of each of some instances took, all begun at about the same time.

    Attributes:
        size: Inferences in a batch.
        instances: That worked at once.
        seconds: Until the last one was done.
    """

    size: int
    instances: int
    seconds: float


@dataclass(frozen=True)
class BatchTimes:
    """The mean time of a batch by its size, ascending; larger batches take no less."""

    sizes: Seconds
    means_s: Seconds

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> Self | None:
        """``rows``: batch size, executions and nanoseconds of them all; None without any."""
        from scipy.optimize import isotonic_regression

        counts: dict[int, int] = defaultdict(int)
        total_ns: dict[int, int] = defaultdict(int)
        for size, executions, took_ns in rows:
            counts[size] += executions
            total_ns[size] += took_ns
        sizes = sorted(size for size, count in counts.items() if count)
        if not sizes:
            return None
        means_s = np.array([max(total_ns[n] / counts[n] / 1e9, 1e-9) for n in sizes])
        fit = isotonic_regression(means_s, weights=[counts[n] for n in sizes])
        return cls(np.array(sizes, float), fit.x)

    def seconds(self, sizes: Sizes) -> Seconds:
        """Interpolated; beyond the largest along the line from the smallest one to it."""
        last, last_s = self.sizes[-1], self.means_s[-1]
        first, first_s = (self.sizes[0], self.means_s[0]) if len(self.sizes) > 1 else (0.0, 0.0)
        beyond = (last_s - first_s) / (last - first) * np.maximum(sizes - last, 0.0)
        result: Seconds = np.interp(sizes, self.sizes, self.means_s) + beyond
        return result


@dataclass(frozen=True)
class BatchProfile:
    """See this module.

    Attributes:
        alone: What a batch takes while no other instance works.
        exclusive: The share of that which no two instances do at once, by size, ascending; None
            where one instance was seen.
    """

    alone: BatchTimes
    exclusive: Mapping[int, float] | None = None

    @classmethod
    def of(cls, calls: Sequence[BatchCall]) -> Self | None:
        """None without a call of one instance by itself."""
        rows = [(c.size, 1, round(c.seconds * 1e9)) for c in calls if c.instances == 1]
        alone = BatchTimes.of(rows)
        if alone is None:
            return None
        shares = defaultdict[int, list[float]](list)
        for call in calls:
            if call.instances > 1:
                alone_s = float(alone.seconds(np.array([call.size]))[0])
                share = (call.seconds / alone_s - 1.0) / (call.instances - 1)
                shares[call.size].append(min(max(share, 0.0), 1.0))
        exclusive = {size: fmean(shares[size]) for size in sorted(shares)}
        return cls(alone, exclusive or None)

    def capacity_per_s(
        self, instances: int, sizes: Sizes, within_s: float, late_share: float
    ) -> float:
        """Inferences a second that so many instances answer in time, in batches of these sizes.

        What is left of ``within_s`` after its own batch and the one before is for a queue, whose
        tail falls exponentially: the one of arrivals by chance at a server of this rate in heavy
        traffic (Kingman 1961).

        Args:
            sizes: Ascending.
            within_s: From the moment a request is due until it is answered.
            late_share: Of the requests, which may take longer.
        """
        at_once, share = 1, np.zeros(len(sizes))
        if self.exclusive is not None:
            at_once = instances
            share = np.interp(sizes, [*self.exclusive], [*self.exclusive.values()])
        cycle_s = self.alone.seconds(sizes) * np.maximum(1.0, at_once * share)
        rate_per_s = at_once * sizes / cycle_s
        left_s = np.maximum(within_s - (1.0 + 1.0 / at_once) * cycle_s, 0.0)
        waiting = -math.log(late_share) / (2.0 * rate_per_s * np.maximum(left_s, 1e-9))
        return float((rate_per_s * np.maximum(1.0 / (1.0 + waiting), LEAST_SHARE)).max())

    def fits(self, size: int, within_s: float) -> bool:
        """Whether a batch of this size takes no longer than ``within_s`` by itself."""
        return bool(self.alone.seconds(np.array([size]))[0] <= within_s)
