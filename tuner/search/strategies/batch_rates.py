"""What the service time by batch size says about candidates that were not measured yet.

Every measured load leaves a table of batch size to service time in Triton's own statistics. If the
largest batch that fits a model's SLO has n inferences and takes S(n) seconds, each instance answers
at most n / S(n), and where each request of the mix brings v inferences to the model, it bounds the
load by n / S(n) / v (the utilisation law). What several instances gain, a model of the trials has
to learn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt

from tuner.measurement.measurement import ServerStatistics
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import Served
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec

#: A request waits for the batch before its own, so that this many must fit the SLO.
_BATCHES = 2


@dataclass(frozen=True)
class Visits:
    """How requests come to a model.

    Attributes:
        inferences: For each request of the mix.
        request_size: Inferences of its smallest request.
        within_s: What the SLOs allow its requests.
    """

    inferences: float
    request_size: int
    within_s: float


@dataclass(frozen=True)
class BatchRates:
    """Learns the table from trials.

    Attributes:
        visits: By label of each model that computes for a part of the mix.
    """

    served: Served
    visits: Mapping[str, Visits]

    @classmethod
    def of(cls, space: Space, spec: Spec) -> Self:
        return cls(space.served, _visits(space.served, spec))

    def learned(self, history: Sequence[Trial]) -> Callable[[Candidate], float]:
        """Logarithm of the mix's requests per second and instance of the model that bounds it.

        0 while a model's times are not known.
        """
        tables = {label: self._table(label, history) for label in self.visits}

        @cache
        def log_rate(label: str, most: int) -> float:
            table, visits = tables[label], self.visits[label]
            assert table is not None
            sizes = np.arange(visits.request_size, max(most, visits.request_size) + 1)
            seconds = table.seconds(sizes)
            fit = _BATCHES * seconds <= visits.within_s
            fit[0] = True
            return float(np.log(sizes[fit] / seconds[fit] / visits.inferences).max())

        def log_rate_of(candidate: Candidate) -> float:
            if not all(tables.values()):
                return 0.0
            configs = {la: self._config(la, candidate) for la in tables}
            return min((log_rate(la, _largest_batch(c)) for la, c in configs.items()), default=0.0)

        return log_rate_of

    def _table(self, label: str, history: Sequence[Trial]) -> BatchTimes | None:
        """Only from where the fewest instances were, which wait least for one another."""
        counted = [
            (_instances(self._config(label, trial.candidate)), found.batch_stats)
            for trial in history
            for models in _counted(trial)
            if (found := models.get(label)) is not None and found.batch_stats
        ]
        fewest = min((instances for instances, _ in counted), default=0)
        return BatchTimes.of([row for n, rows in counted if n == fewest for row in rows])

    def _config(self, label: str, candidate: Candidate) -> ModelConfig:
        return self.served.models[label].base.message(candidate.of(label))


def _counted(trial: Trial) -> Iterator[Mapping[str, ServerStatistics]]:
    """What the server counted in each of a trial's measurements."""
    if trial.saturated is not None:
        yield trial.saturated.models
    yield from (point.measurement.models for point in trial.points)


@dataclass(frozen=True)
class BatchTimes:
    """The mean time of a batch by its size, ascending; larger batches take no less."""

    sizes: npt.NDArray[np.float64]
    means_s: npt.NDArray[np.float64]

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
        found = isotonic_regression(means_s, weights=[counts[n] for n in sizes])
        return cls(np.array(sizes, float), found.x)

    def seconds(self, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Interpolated; beyond the largest along the line from the smallest one to it."""
        last, last_s = self.sizes[-1], self.means_s[-1]
        first, first_s = (self.sizes[0], self.means_s[0]) if len(self.sizes) > 1 else (0.0, 0.0)
        beyond = (last_s - first_s) / (last - first) * np.maximum(sizes - last, 0.0)
        found: npt.NDArray[np.float64] = np.interp(sizes, self.sizes, self.means_s) + beyond
        return found


def _visits(served: Served, spec: Spec) -> dict[str, Visits]:
    found: dict[str, Visits] = {}
    for name, share in spec.shares.items():
        stream = spec.streams[name]
        bounds = [
            s.bound / 1e6 for s in spec.slos if s.metric.is_latency and s.stream in ("", name)
        ]
        size, within_s = stream.batch_size, min(bounds, default=math.inf)
        for label in served.answering([stream.model]):
            if not share or is_ensemble(served.models[label].base.file):
                continue
            known = found.get(label, Visits(0.0, size, within_s))
            found[label] = Visits(
                known.inferences + share * size,
                min(known.request_size, size),
                min(known.within_s, within_s),
            )
    return found


def _largest_batch(config: ModelConfig) -> int:
    return config.max_batch_size if config.HasField("dynamic_batching") else 1


def _instances(config: ModelConfig) -> int:
    return sum(max(g.count, 1) for g in config.instance_group if not g.passive) or 1
