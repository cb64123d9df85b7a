"""Watches server and machine while load is on: statistics, metrics, CPU, twice a second.

The measured window is only known afterwards, from perf_analyzer's time stamps, so samples are
taken all along and those nearest to the window's bounds are used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil

from tuner.errors import TunerError
from tuner.load.measurement import HostUse, ServerStatistics
from tuner.load.statistics import difference
from tuner.triton.statistics import Metrics, StatisticsSnapshot

PERIOD_S = 0.5

Snapshot = Callable[[], StatisticsSnapshot]
Scrape = Callable[[], Metrics | None]


@dataclass(frozen=True)
class Sample:
    """Everything read at one moment; ``cpu_percent`` is of all cores since the last sample."""

    time_ns: int
    statistics: StatisticsSnapshot
    metrics: Metrics | None
    cpu_percent: float


class Sampler:
    """Samples in a thread of its own for as long as its context is open.

    A server that stops answering ends the sampling and nothing else: the load generator will
    say what happened.
    """

    def __init__(self, snapshot: Snapshot, scrape: Scrape, period_s: float = PERIOD_S) -> None:
        self._snapshot = snapshot
        self._scrape = scrape
        self._period_s = period_s
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        psutil.cpu_percent()  # starts its interval
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def between(self, start_ns: int, end_ns: int) -> tuple[Sample, ...]:
        """Samples from the one nearest to the start to the one nearest to the end."""
        samples = tuple(self._samples)
        if not samples:
            return ()
        first = min(range(len(samples)), key=lambda i: abs(samples[i].time_ns - start_ns))
        last = min(range(len(samples)), key=lambda i: abs(samples[i].time_ns - end_ns))
        return samples[first : last + 1]

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                self._samples.append(self._sample())
            except TunerError:
                return
            due = max(due + self._period_s, time.monotonic())
            if self._stop.wait(due - time.monotonic()):
                return

    def _sample(self) -> Sample:
        statistics = self._snapshot()
        taken_ns = time.time_ns()
        return Sample(taken_ns, statistics, self._scrape(), psutil.cpu_percent())


def server_statistics(samples: Sequence[Sample]) -> ServerStatistics | None:
    """What the server counted from the first sample to the last."""
    return difference(samples[0].statistics, samples[-1].statistics) if len(samples) > 1 else None


def host_use(samples: Sequence[Sample], model: str) -> HostUse:
    """What machines and cache did from the first sample to the last."""
    within = samples[1:]  # CPU use counts back to the sample before
    if not within:
        return HostUse()
    readings = [sample.metrics for sample in samples if sample.metrics is not None]
    utilization = _sums(readings, "nv_cache_util")
    memory = _sums(readings, "nv_gpu_memory_used_bytes")
    evictions = _sums(readings, "nv_cache_num_evictions")
    entries = _sums(readings, "nv_cache_num_entries")
    return HostUse(
        cpu_percent=sum(s.cpu_percent for s in within) / len(within),
        pending_requests_max=max(
            _sums(readings, "nv_inference_pending_request_count", model=model), default=None
        ),
        gpu_memory_used_bytes=int(max(memory)) if memory else None,
        gpu_utilization=_mean([v for m in readings for v in m.values("nv_gpu_utilization")]),
        gpu_power_w=_mean(_sums(readings, "nv_gpu_power_usage")),
        cache_utilization=utilization[-1] if utilization else None,
        cache_entries=int(entries[-1]) if entries else None,
        cache_evictions=int(evictions[-1] - evictions[0]) if evictions else None,
    )


def _sums(readings: Sequence[Metrics], name: str, **labels: str) -> list[float]:
    """A metric's total over GPUs or versions in each reading that has it."""
    values = [metrics.values(name, **labels) for metrics in readings]
    return [sum(v) for v in values if v]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
