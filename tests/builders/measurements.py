"""Synthetic measurements for unit tests: numbers made by formulas, never measured."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import Arrivals, Figures, LoadPoint, Measurement
from tuner.score.judge import SloOutcome
from tuner.spec.metrics import ERROR_RATE, METRICS, P99_LATENCY, Until
from tuner.spec.slo import Slo


def latency_slo(
    share: float, within_s: float, stream: str = "", *, until_first: bool = False
) -> Slo:
    """So large a share of the requests is in time."""
    until = Until.FIRST if until_first else Until.ANSWER
    tail = replace(P99_LATENCY.lasting(until), quantile=share)
    named = (m for m in METRICS.values() if (m.quantile, m.until) == (share, until))
    return Slo(next(named, tail), round(1e6 * within_s, 6), stream=stream)


P99_40MS = Slo(P99_LATENCY, 40_000.0, "p99_latency <= 40ms")
NO_ERRORS = Slo(ERROR_RATE, 0.0, "error_rate <= 0%")


def synthetic_measurement(
    level: float = 100.0,
    p99_us: float = 20_000.0,
    *,
    served: float | None = None,
    count: int = 1000,
    failed: int = 0,
    arrivals: Arrivals = Arrivals.POISSON,
    duration_s: float = 3.0,
    gpu_memory: int | None = None,
) -> Measurement:
    """A measurement whose latencies rise evenly from half the p99 to the p99."""
    latencies = np.linspace(p99_us / 2, p99_us, count)
    return Measurement(
        load=LoadPoint(arrivals, level),
        seed=1,
        duration_s=duration_s,
        completed_count=count,
        failed_count=failed,
        throughput_infer_per_s=level if served is None else served,
        avg_latency_us=float(latencies.mean()),
        p50_latency_us=float(np.quantile(latencies, 0.5)),
        p90_latency_us=float(np.quantile(latencies, 0.9)),
        p95_latency_us=float(np.quantile(latencies, 0.95)),
        p99_latency_us=p99_us,
        host=HostUse(gpu_memory_used_bytes=gpu_memory),
        latencies_us=latencies,
    )


def synthetic_figures(level: float = 100.0, p99_us: float = 20_000.0, **more: Any) -> Figures:
    """The figures of a stream or of a shape; ``more``: as of `synthetic_measurement`."""
    return part_of(synthetic_measurement(level, p99_us, **more))


def part_of(measurement: Measurement) -> Figures:
    """The figures of its requests alone, as of a stream."""
    return Figures(**{f.name: getattr(measurement, f.name) for f in fields(Figures)})


#: Times its capacity, what an emulated server answers when it is asked for more.
SERVED_WHEN_SATURATED = 1.05


def synthetic_server(level: float, capacity: float, duration_s: float = 5.0) -> Measurement:
    """An emulated server: in time up to its capacity, saturated and late above it."""
    p99_us = 15_000.0 + 25_000.0 * (level / capacity) ** 8
    served = min(level, SERVED_WHEN_SATURATED * capacity)
    return synthetic_measurement(
        level,
        min(p99_us, 4e6),
        served=served,
        count=max(1, round(served * duration_s)),
        duration_s=duration_s,
    )


@dataclass(frozen=True)
class Probe:
    """A `tuner.score.capacity.Probe`."""

    level: float
    passed: bool
    served_per_s: float | None = None
    slo_utilisation: float | None = None
    few: bool = False

    @property
    def outcome(self) -> SloOutcome:
        if self.few:
            return SloOutcome.TOO_FEW
        return SloOutcome.MET if self.passed else SloOutcome.MISSED
