"""Readings of machine, GPUs and server, and what happened between two of them.

CPU time is split into our own processes and all others. GPU clocks are read with
`tuner.machine.nvml`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil

from tuner.machine.host import read_governor
from tuner.machine.nvml import handles, open_nvml
from tuner.machine.own_containers import is_inside
from tuner.measurement.measurement import ServerStatistics
from tuner.server.control import BatchStatistics, StatisticsSnapshot
from tuner.spec.fields import Gpus

#: Bits of NVML's clock event reasons (nvml.h). A card under full load lives at its power cap
#: (0x4), which is no disturbance: it would be there again in the next measurement.
_IDLE = 0x1
_HELD_DOWN = 0x8 | 0x20 | 0x40 | 0x80  # slowdown, too hot (driver's or card's view), power brake


@dataclass(frozen=True)
class MachineReading:
    """CPU seconds since boot, over all cores, at one moment.

    Attributes:
        processes_s: Spent by processes, ours and others; interrupts belong to none.
        ours_s: Spent by our own processes, see `OwnProcesses`; None when the server is not
            among them.
        stolen_s: Given to other guests by the hypervisor.
    """

    total_s: float
    idle_s: float
    processes_s: float
    stolen_s: float
    ours_s: float | None
    load_1m: float
    governor: str | None


class OwnProcesses:
    """The calling process and its descendants, and with ``containers`` those of our containers.

    To list a process's children psutil reads about every process of the machine, 25 us each:
    too long for a look twice a second on a machine with thousands. So only those that have come
    since the last look are asked whose children they are.
    """

    def __init__(self, *, containers: bool = False) -> None:
        self._ours = {os.getpid(): psutil.Process()}
        self._others: set[int] = set()
        self._containers = containers
        self._seen_inside = False

    def cpu_s(self) -> float | None:
        """CPU seconds of them all, the ended ones included; None while no container's are seen.

        A process that ended is in its parent's ``children_*`` once it was waited for, so the sum
        does not fall when one ends.
        """
        self._look()
        if self._containers and not self._seen_inside:
            return None
        seconds = 0.0
        for process in self._ours.values():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
        return seconds

    def _look(self) -> None:
        present = set(psutil.pids())
        self._ours = {pid: process for pid, process in self._ours.items() if pid in present}
        parents: dict[int, int] = {}
        for pid in present - self._ours.keys() - self._others:
            with suppress(psutil.NoSuchProcess):
                if self._containers and is_inside(pid):
                    self._ours[pid] = psutil.Process(pid)
                    self._seen_inside = True
                else:
                    parents[pid] = psutil.Process(pid).ppid()
        while found := {pid for pid, parent in parents.items() if parent in self._ours}:
            for pid in found:
                del parents[pid]
                with suppress(psutil.NoSuchProcess):
                    self._ours[pid] = psutil.Process(pid)
        self._others = (self._others & present) | parents.keys()


def read_machine(ours: OwnProcesses | None) -> MachineReading:
    """Reads it now; ``ours`` only where the server's processes are known."""
    own = None if ours is None else ours.cpu_s()
    now = psutil.cpu_times()
    waiting = getattr(now, "iowait", 0.0)
    stolen = getattr(now, "steal", 0.0)
    other = getattr(now, "irq", 0.0) + getattr(now, "softirq", 0.0)
    processes = now.user + now.system + getattr(now, "nice", 0.0)  # guests are within user
    return MachineReading(
        total_s=processes + other + now.idle + waiting + stolen,
        idle_s=now.idle + waiting,
        processes_s=processes,
        stolen_s=stolen,
        ours_s=own,
        load_1m=os.getloadavg()[0],
        governor=read_governor(),
    )


def busy_percent(before: MachineReading, after: MachineReading) -> float | None:
    """Percent of all cores in use."""
    return _percent(before, after, after.total_s - after.idle_s - before.total_s + before.idle_s)


def other_percent(before: MachineReading, after: MachineReading) -> float | None:
    """Share of all cores used by processes that are not ours; None if ours are not known."""
    if before.ours_s is None or after.ours_s is None:
        return None
    ours_s = after.ours_s - before.ours_s
    return _percent(before, after, after.processes_s - before.processes_s - ours_s)


def stolen_percent(before: MachineReading, after: MachineReading) -> float | None:
    """Percent of all cores taken by the hypervisor."""
    return _percent(before, after, after.stolen_s - before.stolen_s)


def _percent(before: MachineReading, after: MachineReading, spent_s: float) -> float | None:
    total_s = after.total_s - before.total_s
    if total_s <= 0.0:
        return None
    return 100.0 * min(max(spent_s / total_s, 0.0), 1.0)  # ticks of 10 ms can cross


@dataclass(frozen=True)
class GpuClocks:
    """The GPUs that were working at one moment.

    Attributes:
        lowest_mhz: SM clock of the slowest one.
        held_down: Heat or a power fault holds some GPU's clocks down.
    """

    lowest_mhz: float
    held_down: bool


ReadClocks = Callable[[], GpuClocks | None]


@contextmanager
def gpu_clocks(gpus: Gpus = "all") -> Iterator[ReadClocks]:
    """A function that reads them for as long as the context is open; None: nothing to be read.

    Only of ``gpus``: what others do is no disturbance of this server.
    """
    with open_nvml() as nvml:
        yield lambda: None if nvml is None else _clocks(nvml, gpus)


def _clocks(nvml: Any, gpus: Gpus) -> GpuClocks | None:
    clocks: list[float] = []
    reasons = 0
    for gpu in handles(nvml, gpus):
        try:
            why = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
            clock = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
        except nvml.NVMLError:  # not every card and driver tells
            continue
        if not why & _IDLE:
            clocks.append(float(clock))
            reasons |= why
    return GpuClocks(min(clocks), bool(reasons & _HELD_DOWN)) if clocks else None


def statistics_between(
    before: StatisticsSnapshot, after: StatisticsSnapshot
) -> ServerStatistics | None:
    """What the server counted between two snapshots; None when its counters were reset.

    Queue time is per successful request, compute times per request that was computed (cache
    hits are not), in microseconds.
    """
    success = after.success_count - before.success_count
    hits = after.cache_hit_count - before.cache_hit_count
    executions = after.execution_count - before.execution_count
    if min(success, hits, executions, after.inference_count - before.inference_count) < 0:
        return None
    computed = max(success - hits, 0)

    def compute_us(name: str) -> float:
        return _per_request_us(getattr(after, name) - getattr(before, name), computed)

    return ServerStatistics(
        success_count=success,
        fail_count=after.fail_count - before.fail_count,
        inference_count=after.inference_count - before.inference_count,
        execution_count=executions,
        queue_us=_per_request_us(after.queue_ns - before.queue_ns, success),
        compute_input_us=compute_us("compute_input_ns"),
        compute_infer_us=compute_us("compute_infer_ns"),
        compute_output_us=compute_us("compute_output_ns"),
        cache_hit_count=hits,
        cache_miss_count=after.cache_miss_count - before.cache_miss_count,
        batch_stats=_batches(before, after),
    )


def _per_request_us(total_ns: int, count: int) -> float:
    return total_ns / count / 1e3 if count else 0.0


def _batches(
    before: StatisticsSnapshot, after: StatisticsSnapshot
) -> tuple[tuple[int, int, int], ...]:
    none = BatchStatistics(0, 0)
    rows = []
    for size, now in sorted(after.batches.items()):
        then = before.batches.get(size, none)
        if now.count > then.count:
            rows.append(
                (size, now.count - then.count, now.compute_infer_ns - then.compute_infer_ns)
            )
    return tuple(rows)
