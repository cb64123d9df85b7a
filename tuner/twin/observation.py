"""From finished trials to what the twin is fitted to: each load point with its load drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.load.measurement import LatencySource, LoadPoint, Measurement
from tuner.load.traffic.arrivals import Shape, arrivals_of
from tuner.modelconfig.base import Base
from tuner.run.trial import Trial, TrialState
from tuner.space.candidate import Candidate
from tuner.twin.model import Unmodelled, scheduler_of, service_key
from tuner.twin.system import Scheduler, Traffic

#: Arrivals are drawn for this long after the window, as `tuner.load.perf_analyzer.generator` does.
_AFTER_S = 2.0
#: Inputs asked for beforehand to fill a cache, for each that can be asked for.
_WARM_ROUNDS = 10


@dataclass(frozen=True)
class Repeats:
    """Which inputs requests carry: ``unique`` ones, the n-th in proportion to n**-exponent."""

    unique: int
    exponent: float = 0.0


@dataclass(frozen=True)
class Setting:
    """What is the same for all trials of a run.

    Attributes:
        base: The model's config.
        warmup_s: Load before each window.
        tail_s: And after it.
        devices: GPUs the server sees.
        shape: Of arrivals that have one beside their rate.
        repeats: None when no input comes twice.
        response_bytes: Size of a cache entry, where known.
        cores: That server and client share; None where they are not on one machine.
    """

    base: Base
    warmup_s: float = 0.5
    tail_s: float = 0.3
    devices: int = 1
    request_size: int = 1
    shape: Shape | None = None
    repeats: Repeats | None = None
    response_bytes: int | None = None
    cores: int | None = None

    def scheduler(self, candidate: Candidate) -> Scheduler | Unmodelled:
        return scheduler_of(
            candidate, self.base, devices=self.devices, response_bytes=self.response_bytes
        )

    def traffic(self, load: LoadPoint, duration_s: float, seed: int) -> Traffic:
        """The load as the generator draws it: equal seeds, equal arrivals."""
        start_s, end_s = self.warmup_s, self.warmup_s + duration_s
        closed = not load.arrivals.open_loop
        due_s, count = None, 0
        if not closed:
            spans_s = (self.warmup_s, duration_s, self.tail_s + _AFTER_S)
            due_s = arrivals_of(load, spans_s, seed, self.shape)
            due_s = due_s[due_s < end_s + self.tail_s]
            count = due_s.size
        traffic = Traffic(
            window_s=(start_s, end_s),
            end_s=end_s + self.tail_s,
            due_s=due_s,
            concurrency=round(load.level) if closed else 0,
            request_size=self.request_size,
        )
        return traffic if self.repeats is None else _with_keys(traffic, self.repeats, count, seed)


def _with_keys(traffic: Traffic, repeats: Repeats, count: int, seed: int) -> Traffic:
    count = count or round(traffic.end_s * 20_000)
    warm = min(repeats.unique * _WARM_ROUNDS, 50_000)
    drawn = draw_keys(repeats, warm + count, seed)
    return replace(traffic, keys=drawn[warm:], warm_keys=drawn[:warm])


def draw_keys(repeats: Repeats, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Independent draws of 0 to ``unique - 1``."""
    weights = np.arange(1, repeats.unique + 1, dtype=float) ** -repeats.exponent
    cumulative = np.cumsum(weights)
    draws = np.random.default_rng((seed, repeats.unique)).random(count) * cumulative[-1]
    found: npt.NDArray[np.int64] = np.searchsorted(cumulative, draws, side="right")
    return found


@dataclass(frozen=True)
class Observation:
    """One measured load point: what was simulated for it, and what it is to show.

    Attributes:
        trial: Which trial it belongs to; trials are resampled as a whole.
        compute_us: Mean time of the batch a request was in, responses included; None if unknown.
        busy_cores: Of the machine, by server and client together; None if unknown.
        saturated: Open loop, and the server did not keep up: its latencies depend on how long
            the load went on, and only its throughput says something.
    """

    trial: int
    scheduler: Scheduler
    traffic: Traffic
    seed: int
    measurement: Measurement
    compute_us: float | None
    mean_batch_size: float | None
    busy_cores: float | None
    saturated: bool

    @property
    def tells_throughput(self) -> bool:
        """Below saturation an open loop's throughput is the load itself."""
        return self.saturated or not self.measurement.load.arrivals.open_loop


def observations_of(trials: Sequence[Trial], setting: Setting) -> list[Observation]:
    """Every load point of the measured trials that the twin can simulate.

    Trials that differ in a field the twin knows nothing about cannot be fitted together: only
    those that agree with most of them are used.
    """
    usable = [t for t in trials if t.state is not TrialState.FAILED and t.points]
    kinds = [service_key(t.candidate) for t in usable]
    common = max(kinds, key=kinds.count, default=())
    found = []
    for trial, kind in zip(usable, kinds, strict=True):
        scheduler = setting.scheduler(trial.candidate)
        if kind != common or isinstance(scheduler, Unmodelled):
            continue
        found += [
            observation(trial.number, scheduler, point.measurement, setting)
            for point in trial.points
            if point.measurement.source is LatencySource.REQUESTS
        ]
    return found


def observation(
    trial: int, scheduler: Scheduler, measurement: Measurement, setting: Setting
) -> Observation:
    load, server = measurement.load, measurement.server
    offered = load.level * measurement.batch_size if load.arrivals.open_loop else 0.0
    compute_us = None
    if server is not None and server.execution_count:
        compute_us = server.compute_input_us + server.compute_infer_us + server.compute_output_us
        # Hits count as requests that took no time to compute.
        compute_us /= max(1.0 - (server.cache_hit_rate or 0.0), 1e-3)
    return Observation(
        trial=trial,
        scheduler=scheduler,
        traffic=setting.traffic(load, measurement.duration_s, measurement.seed),
        seed=measurement.seed,
        measurement=measurement,
        compute_us=compute_us,
        mean_batch_size=None if server is None else server.mean_batch_size,
        busy_cores=_busy_cores(measurement, setting.cores),
        saturated=measurement.throughput_infer_per_s < 0.97 * offered
        or measurement.unanswered_count > 0.01 * max(measurement.completed_count, 1),
    )


def _busy_cores(measurement: Measurement, cores: int | None) -> float | None:
    used, others = measurement.host.cpu_percent, measurement.host.other_cpu_percent
    if cores is None or used is None:
        return None
    return cores * (used - (others or 0.0)) / 100.0
