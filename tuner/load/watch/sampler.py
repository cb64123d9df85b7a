"""Samples server and machine during a load: statistics, metrics and CPU, twice a second.

The measured window is known only afterwards, from perf_analyzer's time stamps, so samples cover the
whole load, and those nearest to the window's start and end are used.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields

import psutil

from tuner.errors import InterruptedRunError, TunerError, UndecidedError
from tuner.load.course import memory_trend
from tuner.load.watch.machine import (
    NOT_WATCHED,
    GpuClocks,
    MachineReading,
    ReadClocks,
    Stalls,
    TunerProcesses,
    cpu_use,
    gpu_clocks,
    quiet_percent,
    quota_use,
    read_machine,
)
from tuner.machine.host import gpu_memory, has_gpu
from tuner.machine.quota import Quota, read_quota
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import ServerStatistics
from tuner.measurement.window import Window
from tuner.server import health
from tuner.server.control import BatchStatistics, Metrics, StatisticsSnapshot
from tuner.server.memory import gpu_use
from tuner.server.server import Endpoints, Place
from tuner.spec.fields import Gpus

_logger = logging.getLogger(__name__)
#: Time for a server to become idle.
REST_S = 1.0
_POLL_S = 0.01

PERIOD_S = 0.5
_COUNTS = [f.name for f in fields(StatisticsSnapshot) if f.name.endswith("_count")]

#: Counters by name of the model.
Snapshot = Callable[[], Mapping[str, StatisticsSnapshot]]
Scrape = Callable[[], Metrics | None]


@dataclass(frozen=True)
class Sample:
    """All readings at one moment."""

    time_ns: int
    statistics: Mapping[str, StatisticsSnapshot]
    metrics: Metrics | None
    machine: MachineReading
    gpus: GpuClocks | None = None
    shared_cores: int | None = None
    gpu_memory: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Sampler:
    """Samples in its own thread while its context is open.

    If the server stops answering, only the sampling ends: the load generator reports the failure.

    Args:
        snapshot: Reads the statistics of all models.
        scrape: Reads the server's metrics; None if it has none.
        place: Where the server runs. The processes of a remote server are unknown, and so are those
            of a container unless its engine shows them here; a remote server may have other GPUs
            than this machine.
        period_s: Interval between samples.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scrape: Scrape,
        place: Place,
        period_s: float = PERIOD_S,
        gpus: Gpus = "all",
        stalls: Stalls = NOT_WATCHED,
    ) -> None:
        self._snapshot = snapshot
        self._scrape = scrape
        self._place = place
        self._period_s = period_s
        self._gpus = gpus
        self.stalls = stalls
        self.quota = read_quota() if place is Place.HERE else None
        self._cpus: Collection[int] = ()
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
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

    def spells(self, window: Window, stopped_ns: int | None) -> Sequence[tuple[int, int]]:
        """Stalls to leave out of a window, in ns; empty if the window includes them, or if few.

        Raises:
            UndecidedError: The load ended early, at ``stopped_ns``, perhaps because of a stall.
        """
        if not (window.quiet_only and self._samples):
            return ()
        period = self._samples[0].time_ns, self._samples[-1].time_ns
        if (self.stalls.percent(*period) or 0.0) <= quiet_percent(window.tightest):
            return ()
        if stopped_ns is not None:
            raise UndecidedError("ended early, perhaps because of a stall of the machine")
        return self.stalls.spans_ns

    def _watch(self) -> None:
        try:
            with suppress(TunerError):
                self._run()
        except Exception as error:  # nothing else would report it
            _logger.warning("readings of the machine end here (a defect of tune): %r", error)

    def _run(self) -> None:
        remote = self._place is Place.ELSEWHERE
        cpus = os.sched_getaffinity(0) if self._place is Place.HERE else set()
        if len(cpus) == psutil.cpu_count():
            cpus = set()
        self._cpus = cpus
        cores = None if remote else len(cpus) or psutil.cpu_count()
        in_container = self._place is Place.CONTAINER
        ours = None if remote else TunerProcesses(containers=in_container)
        with nullcontext(lambda: None) if remote else gpu_clocks(self._gpus) as clocks:
            due = time.monotonic()
            while True:
                self._samples.append(self._sample(ours, clocks, cores))
                due = max(due + self._period_s, time.monotonic())
                if self._stop.wait(due - time.monotonic()):
                    return

    def _sample(self, ours: TunerProcesses | None, clocks: ReadClocks, cores: int | None) -> Sample:
        statistics = self._snapshot()
        taken_ns = time.time_ns()
        metrics, machine = self._scrape(), read_machine(ours, self.quota, self._cpus)
        here = ours is not None and has_gpu()
        memory = gpu_use(metrics) or (gpu_memory(self._gpus) if here else {})
        return Sample(taken_ns, statistics, metrics, machine, clocks(), cores, memory)


def server_statistics(
    samples: Sequence[Sample], models: Iterable[str]
) -> Mapping[str, ServerStatistics]:
    """Statistics of each model from the first sample to the last; without unknown models."""
    if len(samples) < 2:
        return {}
    first, last = samples[0].statistics, samples[-1].statistics
    counted = {model: statistics_between(first[model], last[model]) for model in models}
    return {model: statistics for model, statistics in counted.items() if statistics is not None}


def statistics_between(
    before: StatisticsSnapshot, after: StatisticsSnapshot
) -> ServerStatistics | None:
    """Statistics between two snapshots; None if the server's counters were reset.

    Queue time is the mean per successful request, compute times are means per computed request
    (without cache hits), in microseconds.
    """
    counts = {name: getattr(after, name) - getattr(before, name) for name in _COUNTS}
    if min(counts.values()) < 0:
        return None
    success = counts["success_count"]
    computed = max(success - counts["cache_hit_count"], 0)

    def mean_us(name: str, count: int) -> float:
        return (getattr(after, name) - getattr(before, name)) / count / 1e3 if count else 0.0

    batches = []
    for size, now in sorted(after.batches.items()):
        then = before.batches.get(size, BatchStatistics(0, 0))
        if now.count > then.count:
            spent_ns = now.compute_infer_ns - then.compute_infer_ns
            batches.append((size, now.count - then.count, spent_ns))
    return ServerStatistics(
        **counts,
        queue_us=mean_us("queue_ns", success),
        compute_input_us=mean_us("compute_input_ns", computed),
        compute_infer_us=mean_us("compute_infer_ns", computed),
        compute_output_us=mean_us("compute_output_ns", computed),
        batch_stats=tuple(batches),
    )


def host_use(
    samples: Sequence[Sample],
    models: Collection[str],
    stalls: Stalls = NOT_WATCHED,
    quota: Quota | None = None,
) -> HostUse:
    """Readings of machine, server and cache from the first sample to the last."""
    if len(samples) < 2:
        return HostUse()
    before, after = samples[0].machine, samples[-1].machine
    gpus = [sample.gpus for sample in samples if sample.gpus is not None]
    readings = [sample.metrics for sample in samples if sample.metrics is not None]
    utilization = _sums(readings, "nv_cache_util")
    memory = [used for sample in samples for used, _ in sample.gpu_memory.values()]
    server = [s.machine.server_bytes for s in samples]
    threads = [n for s in samples if (n := s.machine.server_threads) is not None]
    on_gpus = [sum(used for used, _ in s.gpu_memory.values()) for s in samples if s.gpu_memory]
    evictions = _sums(readings, "nv_cache_num_evictions")
    entries = _sums(readings, "nv_cache_num_entries")
    waiting = [pending for m in readings if (pending := pending_requests(m, models))]
    return HostUse(
        **cpu_use(before, after),
        stalled_percent=stalls.percent(samples[0].time_ns, samples[-1].time_ns),
        quota_cpus=None if quota is None else quota.cpus,
        **quota_use(before, after),
        server_threads=max(threads, default=None),
        memory=memory_trend([used for used in server if used is not None]),
        gpu_memory=memory_trend(on_gpus),
        cores=samples[-1].shared_cores,
        load_1m=after.load_1m,
        governor=after.governor,
        pending_requests_max=max(map(sum, waiting), default=None),
        gpus=max((len(m.values("nv_gpu_memory_used_bytes")) for m in readings), default=0) or None,
        gpu_memory_used_bytes=max(memory, default=None),
        gpu_utilization=_mean([v for m in readings for v in m.values("nv_gpu_utilization")]),
        gpu_power_w=_mean(_sums(readings, "nv_gpu_power_usage")),
        gpu_clock_mhz=min((g.lowest_mhz for g in gpus), default=None),
        gpu_throttled=any(g.throttled for g in gpus) if gpus else None,
        cache_utilization=utilization[-1] if utilization else None,
        cache_entries=int(entries[-1]) if entries else None,
        cache_evictions=int(evictions[-1] - evictions[0]) if evictions else None,
    )


def pending_requests(metrics: Metrics, models: Collection[str]) -> list[float]:
    """Requests in the queue of each model and version; empty if the server does not report them."""
    name = "nv_inference_pending_request_count"
    return [waiting for model in models for waiting in metrics.values(name, model=model)]


def _sums(readings: Sequence[Metrics], name: str) -> list[float]:
    """A metric's sum over GPUs, for each reading that has it."""
    values = [metrics.values(name) for metrics in readings]
    return [sum(v) for v in values if v]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def becomes_idle(scrape: Scrape, models: Collection[str], endpoints: Endpoints) -> bool:
    """Waits until no request waits for one of the models; an ensemble's wait in its steps.

    Returns:
        False if the server is still busy, gone, or does not report: it must not be used further.
    """
    give_up = time.monotonic() + REST_S
    try:
        while (metrics := scrape()) is not None:
            waiting = pending_requests(metrics, models)
            if not any(waiting):
                return bool(waiting) and health.live(endpoints)
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_S)
    except InterruptedRunError:  # a signal, not the server
        raise
    except TunerError:
        pass
    return False
