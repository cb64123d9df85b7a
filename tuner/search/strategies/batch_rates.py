"""The capacity of candidates without a measurement, predicted from service times by batch size.

Triton's statistics of each measurement give the service time of a batch by its size. If the largest
batch that meets a model's SLO has n inferences and takes S(n) seconds, each instance answers at
most n / S(n) inferences per second. Where each request of the mix causes v inferences of the model,
the load per instance is at most n / S(n) / v (the utilisation law). The timed first calls of a
model also show the gain of several instances; without these, the strategy's model must learn it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np

from tuner.measurement.batch_profile import BatchCall, BatchProfile, BatchTimes
from tuner.measurement.measurement import ServerStatistics
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.served import Served
from tuner.score.saturation import Saturated
from tuner.score.trial import Trial
from tuner.space.candidate import Candidate
from tuner.space.space import Space
from tuner.spec.model import Spec

#: A config loses to another if the logarithm of its expected capacity is lower by more than this:
#: over recorded tables, expectations by the first calls have standard errors of 0.1 to 0.25.
OUTDONE = 0.3


@dataclass(frozen=True)
class Visits:
    """The requests that a model receives.

    Attributes:
        inferences: Inferences of the model per request of the mix.
        request_size: Inferences in its smallest request.
        within_s: The tightest latency bound of its requests, in seconds; infinite without one.
        late_share: The share of requests that may exceed the bound, 0 to 1.
        is_entry: All requests of the spec are sent to this model itself.
    """

    inferences: float
    request_size: int
    within_s: float
    late_share: float = 0.5
    is_entry: bool = False


@dataclass(frozen=True)
class BatchRates:
    """Predicts capacities from the service times in trials.

    Attributes:
        visits: The requests of each model that computes for a stream, by the model's label.
    """

    served: Served
    visits: Mapping[str, Visits]

    @classmethod
    def of(cls, space: Space, spec: Spec) -> Self:
        return cls(space.served, _visits(space.served, spec))

    @property
    def of_one_model(self) -> bool:
        """Whether all requests are for one model, which is not an ensemble."""
        return len(self.visits) == 1 and all(v.is_entry for v in self.visits.values())

    def learned(self, history: Sequence[Trial]) -> Callable[[Candidate], float]:
        """A function that gives the logarithm of a candidate's capacity, in requests per second.

        The slowest model bounds the capacity. The function gives 0 while the service times of a
        model are not known.
        """
        profiles = {label: self._profile(label, history) for label in self.visits}

        @cache
        def log_rate(label: str, most: int, instances: int) -> float:
            profile, visits = profiles[label], self.visits[label]
            assert profile is not None
            return math.log(_per_s(profile, visits, most, instances))

        def log_rate_of(candidate: Candidate) -> float:
            if not all(profiles.values()):
                return 0.0
            configs = {la: self._config(la, candidate) for la in profiles}
            return min(
                (log_rate(la, _largest_batch(c), _instances(c)) for la, c in configs.items()),
                default=0.0,
            )

        return log_rate_of

    def capacity_per_s(
        self, candidate: Candidate, calls: Sequence[BatchCall], seen: Saturated | None = None
    ) -> float:
        """Capacity in requests per second by the first ``calls``; infinite if not known.

        ``seen``: the candidate when saturated. It shows how much of several instances' work
        overlaps, where the calls do not.
        """
        profile = BatchProfile.of(calls)
        if profile is None or not self.of_one_model:
            return math.inf
        ((label, visits),) = self.visits.items()
        config = self._config(label, candidate)
        instances = _instances(config)
        statistics = None if seen is None else seen.models.get(label)
        if seen is not None and statistics is not None and statistics.mean_batch_size:
            answered_per_s = seen.answered_per_s * seen.batch_size
            profile = profile.beside(instances, statistics.mean_batch_size, answered_per_s)
        return _per_s(profile, visits, _largest_batch(config), instances)

    def instances(self, candidate: Candidate) -> int:
        """The number of instances, where all requests are for one model."""
        (label,) = self.visits
        return _instances(self._config(label, candidate))

    def largest(self, candidate: Candidate) -> int:
        """Inferences in the largest batch, where all requests are for one model."""
        (label,) = self.visits
        return _largest_batch(self._config(label, candidate))

    def outdone(self, history: Sequence[Trial], other: Candidate) -> Callable[[Candidate], bool]:
        """A function: whether a candidate is expected to lose to ``other``, by first calls."""
        if self.profile(history) is None:
            return lambda _: False
        log_rate = self.learned(history)
        least = log_rate(other) - OUTDONE
        return lambda candidate: log_rate(candidate) < least

    def too_slow(self, history: Sequence[Trial]) -> Callable[[Candidate], bool]:
        """A function: whether a candidate's largest batch alone takes longer than an SLO allows.

        No candidate is too slow where even the smallest request takes longer, since no other config
        would be faster.
        """
        profile = self.profile(history)
        if profile is None:
            return lambda _: False
        ((label, visits),) = self.visits.items()
        hopeless = not profile.fits(visits.request_size, visits.within_s)

        @cache
        def misses(most: int) -> bool:
            return not hopeless and not profile.fits(most, visits.within_s)

        return lambda candidate: misses(_largest_batch(self._config(label, candidate)))

    def profile(self, history: Sequence[Trial]) -> BatchProfile | None:
        """The profile by first calls, of the first config with several instances if there is one.

        None where several models compute, or no first call was timed.
        """
        if not self.of_one_model:
            return None
        profiles = [p for t in history if (p := BatchProfile.of(t.batch_calls)) is not None]
        return next((p for p in profiles if p.exclusive is not None), next(iter(profiles), None))

    def _profile(self, label: str, history: Sequence[Trial]) -> BatchProfile | None:
        """By first calls, else by statistics under load, which show no overlap of instances."""
        called = self.profile(history)
        if called is not None:
            return called
        table = self._table(label, history)
        return None if table is None else BatchProfile(table)

    def _table(self, label: str, history: Sequence[Trial]) -> BatchTimes | None:
        """Service times in trials with the fewest instances, which wait least for each other."""
        counted = [
            (_instances(self._config(label, trial.candidate)), statistics.batch_stats)
            for trial in history
            for models in _counted(trial)
            if (statistics := models.get(label)) is not None and statistics.batch_stats
        ]
        fewest = min((instances for instances, _ in counted), default=0)
        return BatchTimes.of([row for n, rows in counted if n == fewest for row in rows])

    def _config(self, label: str, candidate: Candidate) -> ModelConfig:
        return self.served.models[label].base.message(candidate.of(label))


def outdone_by(
    space: Space, spec: Spec, history: Sequence[Trial], other: Candidate
) -> Callable[[Candidate], bool]:
    """See `BatchRates.outdone`; without first calls in the history, no candidate is outdone."""
    if not any(trial.batch_calls for trial in history):
        return lambda _: False
    return BatchRates.of(space, spec).outdone(history, other)


def _counted(trial: Trial) -> Iterator[Mapping[str, ServerStatistics]]:
    """The server's statistics of each measurement of a trial, by model."""
    if trial.saturated is not None:
        yield trial.saturated.models
    yield from (point.measurement.models for point in trial.points)


def _per_s(profile: BatchProfile, visits: Visits, most: int, instances: int) -> float:
    """Requests of the mix per second; ``most``: inferences in the largest batch."""
    sizes = np.arange(visits.request_size, max(most, visits.request_size) + 1)
    per_s = profile.capacity_per_s(instances, sizes, visits.within_s, visits.late_share)
    return per_s / visits.inferences


def _visits(served: Served, spec: Spec) -> dict[str, Visits]:
    visits: dict[str, Visits] = {}
    for name, share in spec.shares.items():
        stream = spec.streams[name]
        slos = [s for s in spec.slos if s.metric.is_latency and s.holds_for(name)]
        tightest = min(slos, key=lambda s: s.bound, default=None)
        size, within_s, late_share = stream.batch_size, math.inf, 0.5
        if tightest is not None:
            within_s, late_share = tightest.within_s, 1.0 - (tightest.metric.quantile or 0.5)
        for label in served.answering([stream.model]):
            if not share or is_ensemble(served.models[label].base.file):
                continue
            is_entry = label == stream.model and len(spec.streams) == 1
            stream_visits = Visits(share * size, size, within_s, late_share, is_entry)
            known = visits.get(label)
            if known is not None:
                tighter = min(known, stream_visits, key=lambda v: v.within_s)
                total, least = (
                    known.inferences + stream_visits.inferences,
                    min(known.request_size, size),
                )
                stream_visits = replace(tighter, inferences=total, request_size=least)
            visits[label] = stream_visits
    return visits


def _largest_batch(config: ModelConfig) -> int:
    return config.max_batch_size if config.HasField("dynamic_batching") else 1


def _instances(config: ModelConfig) -> int:
    return sum(max(g.count, 1) for g in config.instance_group if not g.passive) or 1
