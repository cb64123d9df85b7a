"""How long batches of a model take, by batch size and by number of instances at work.

The first calls of a freshly loaded model show that, before any load. A batch takes t while no other
instance works, and t + e until both are done beside a second instance: e is its exclusive part,
which no two instances can do at the same time, since they share the device or the CPU. So k
instances answer batches of n inferences at a rate of k n / max(t, k e). A request waits for at most
one batch before its own batch: none with an idle instance, else until the next instance is free.

Sources: Nexus (Shen et al., SOSP 2019, section 4.1); Clockwork (Gujarati et al., OSDI 2020,
section 3): the duration of a batch is predictable.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Self

import numpy as np
import numpy.typing as npt

from tuner.facts import Facts

Sizes = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]


#: The lowest capacity, as a share of the rate of batches, where the bound leaves no time to wait.
LEAST_SHARE = 0.1


@dataclass(frozen=True)
class BatchCall(Facts):
    """How long it took several instances to answer one batch each, all started together.

    Attributes:
        size: Inferences in a batch.
        instances: Number of instances at work.
        seconds: Time until the last batch was done.
    """

    size: int
    instances: int
    seconds: float


@dataclass(frozen=True)
class BatchTimes:
    """Mean duration of a batch by batch size, ascending; larger batches take no less time."""

    sizes: Seconds
    means_s: Seconds

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> Self | None:
        """Durations from rows of (batch size, executions, total nanoseconds); None without rows."""
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
        """Interpolated durations in seconds; above the largest size, extrapolated on a line."""
        last, last_s = self.sizes[-1], self.means_s[-1]
        first, first_s = (self.sizes[0], self.means_s[0]) if len(self.sizes) > 1 else (0.0, 0.0)
        beyond = (last_s - first_s) / (last - first) * np.maximum(sizes - last, 0.0)
        result: Seconds = np.interp(sizes, self.sizes, self.means_s) + beyond
        return result


@dataclass(frozen=True)
class BatchProfile:
    """Durations of batches, alone and beside other instances; see the module's description.

    Attributes:
        alone: Duration of a batch while no other instance works.
        exclusive: Share of that duration which no two instances can do at the same time, 0..1, by
            ascending batch size; None where only one instance was called.
    """

    alone: BatchTimes
    exclusive: Mapping[int, float] | None = None

    @classmethod
    def of(cls, calls: Sequence[BatchCall]) -> Self | None:
        """The profile that calls show; None without a call of one instance alone."""
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

    def beside(self, instances: int, size: float, answered_per_s: float) -> Self:
        """A profile with the exclusive part that a saturated config shows, if no call shows it.

        Args:
            size: Inferences in its mean batch.
            answered_per_s: Inferences per second that it answered.
        """
        if self.exclusive is not None or instances < 2:
            return self
        nearest = max(round(size), 1)
        alone_per_s = nearest / float(self.alone.seconds(np.array([nearest]))[0])
        at_work = min(max(answered_per_s / alone_per_s, 1.0), instances)
        return replace(self, exclusive={nearest: 1.0 / at_work})

    def capacity_per_s(
        self, instances: int, sizes: Sizes, within_s: float, late_share: float
    ) -> float:
        """Inferences per second that this many instances answer in time with these batch sizes.

        A request's own batch and the batch before it use up part of ``within_s``. The rest is for
        a queue whose tail falls exponentially, as it does for Poisson arrivals at a server of this
        rate in heavy traffic (Kingman 1961).

        Args:
            sizes: Batch sizes, ascending.
            within_s: Latency bound, from the moment a request is due until its answer.
            late_share: Share of requests that may take longer, 0..1.
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
        """Whether a batch of this size, alone, takes no longer than ``within_s``."""
        return bool(self.alone.seconds(np.array([size]))[0] <= within_s)
