"""Readings of this machine beside the server: CPU time, GPU clocks, stalls, and disturbances.

CPU time is split into tune's processes, the server's included, and all others. GPU clocks are read
with `tuner.machine.host`.

For stalls, a thread on each core sleeps; a late wake-up shows a stall, as in jHiccup. Anything that
stops a core stops the thread too: a hypervisor, whether or not it reports steal time, the CPU quota
of a control group, a process of higher priority. This method does not show:

- CPU use of other processes. A process of the same priority takes half of a busy core, in slices of
  3 to 4 ms, but the scheduler prefers a thread that has slept: see `HostUse.other_cpu_percent`.
- stalls below `LEAST_S`: slices of the server's own threads are as long.
- who used up a quota: the server itself may have.
- anything about a server on another machine.

A wake-up costs 10 to 25 us: 0.2 to 0.5% of a core that the server keeps busy, and up to 1% of a
core whose caches other work fills.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from tuner.load.watch import stall_meter
from tuner.machine.host import handles, open_nvml, read_governor
from tuner.machine.process import is_inside
from tuner.machine.quota import Quota, Throttling
from tuner.measurement.measurement import Measurement
from tuner.measurement.window import NO_BOUND
from tuner.reason import Fact, Reason, ReasonKind
from tuner.spec.fields import Gpus
from tuner.spec.slo import Slo

#: Bits of NVML's clock event reasons (nvml.h). A card under full load runs at its power cap (0x4),
#: which is not a disturbance: it would be the same in the next measurement.
_IDLE = 0x1
_THROTTLE_REASONS = (
    0x8 | 0x20 | 0x40 | 0x80
)  # slowdown, too hot (according to driver or card), power brake
#: Shortest visible stall: this share of the SLO's bound, but no less than a scheduler's slice.
PART_OF_SLO, LEAST_S = 0.1, 0.005
#: Longest sleep of the thread, which otherwise sleeps for the shortest visible stall.
_LONGEST_SLEEP_S = 0.02
#: Stalls may use this share of the time that the SLO allows to be late; more is a disturbance.
PART_OF_ALLOWANCE = 0.25
#: Other processes' share of all cores, in percent. At capacity, the server uses what others leave,
#: so this share changes the capacity by about the usual ``min_gain``. Stalls do not show it.
OTHER_CPU_PERCENT = 5.0


@dataclass(frozen=True)
class MachineReading:
    """CPU seconds since boot, summed over the CPUs of the run, at one moment.

    Attributes:
        total_s: Time in all states.
        processes_s: Time of all processes, tune's and others; excludes interrupts.
        ours_s: Time of tune's processes and the server's, see `TunerProcesses`; None if the
            server's are unknown.
        server_bytes: Memory of the server's processes; None likewise.
        server_threads: Threads of the server's processes; None likewise.
        stolen_s: Time that the hypervisor gave to other guests.
        load_1m: Load average over the last minute.
        governor: Frequency governor of the first core.
        throttling: Effect of a CPU quota on this process and its children; None without a quota.
    """

    total_s: float
    idle_s: float
    processes_s: float
    stolen_s: float
    ours_s: float | None
    load_1m: float
    governor: str | None
    throttling: Throttling | None = None
    server_bytes: int | None = None
    server_threads: int | None = None


#: Name of the server's process in the kernel.
SERVER_NAME = "tritonserver"


class TunerProcesses:
    """The calling process and its descendants; with ``containers``, also those of containers.

    To list a process's children, psutil reads every process of the machine, at 25 us each: too long
    for two readings per second with thousands of processes. So each reading looks for the parents
    of new processes only.
    """

    def __init__(self, *, containers: bool = False) -> None:
        self._ours = {os.getpid(): psutil.Process()}
        self._servers: set[int] = set()
        self._checked: set[int] = set()  # known to be servers or not
        self._others: set[int] = set()
        self._containers = containers
        self._seen_inside = False

    def cpu_s(self) -> float | None:
        """CPU seconds of them all, including ended ones; None until a container's are known.

        Once a process has been waited for, its time is in its parent's ``children_*``, so the sum
        does not fall when a process ends.
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

    def server_bytes(self) -> int | None:
        """Memory of tritonservers and their children, without shared pages; None without any.

        Shared pages (mapped files, shared memory) do not grow when a process leaks memory.
        """
        self._find_servers()
        used = list[int]()
        for pid in self._servers:
            with suppress(psutil.NoSuchProcess):
                memory = self._ours[pid].memory_info()
                used.append(memory.rss - memory.shared)
        return sum(used) if used else None

    def server_threads(self) -> int | None:
        """Threads of tritonservers and their children; None without any."""
        self._find_servers()
        counts = list[int]()
        for pid in self._servers:
            with suppress(psutil.NoSuchProcess):
                counts.append(self._ours[pid].num_threads())
        return sum(counts) if counts else None

    def _find_servers(self) -> None:
        self._servers &= self._ours.keys()
        parents = dict[int, int]()
        for pid in self._ours.keys() - self._checked:
            with suppress(psutil.NoSuchProcess):
                if self._ours[pid].name() == SERVER_NAME:
                    self._servers.add(pid)
                else:
                    parents[pid] = self._ours[pid].ppid()
        self._checked = {*self._ours}
        while new := {pid for pid, parent in parents.items() if parent in self._servers}:
            self._servers |= new
            parents = {pid: parent for pid, parent in parents.items() if pid not in new}

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
        while processes := {pid for pid, parent in parents.items() if parent in self._ours}:
            for pid in processes:
                del parents[pid]
                with suppress(psutil.NoSuchProcess):
                    self._ours[pid] = psutil.Process(pid)
        self._others = (self._others & present) | parents.keys()


def read_machine(
    ours: TunerProcesses | None, quota: Quota | None = None, cpus: Collection[int] = ()
) -> MachineReading:
    """Reads the machine now.

    Args:
        ours: tune's processes, if the server's are among them; else None.
        quota: The CPU quota on the server's processes, if this process shares it.
        cpus: CPUs of the run; empty: all. Other CPUs do not count.
    """
    our_cpu_s = None if ours is None else ours.cpu_s()
    every = psutil.cpu_times(percpu=True) if cpus else [psutil.cpu_times()]
    counted = [times for cpu, times in enumerate(every) if not cpus or cpu in cpus]

    def spent(name: str) -> float:
        return float(sum(getattr(times, name, 0.0) for times in counted))

    waiting, stolen, idle_s = spent("iowait"), spent("steal"), spent("idle")
    other = spent("irq") + spent("softirq")
    processes = spent("user") + spent("system") + spent("nice")  # user includes guests
    return MachineReading(
        total_s=processes + other + idle_s + waiting + stolen,
        idle_s=idle_s + waiting,
        processes_s=processes,
        stolen_s=stolen,
        ours_s=our_cpu_s,
        load_1m=os.getloadavg()[0],
        governor=read_governor(),
        throttling=None if quota is None else quota.throttling(),
        server_bytes=None if ours is None else ours.server_bytes(),
        server_threads=None if ours is None else ours.server_threads(),
    )


def cpu_use(before: MachineReading, after: MachineReading) -> dict[str, float | None]:
    """Percent of all cores between two readings, by names in `HostUse`; None for unknown ones."""
    total_s = after.total_s - before.total_s

    def percent(spent_s: float) -> float | None:
        if total_s <= 0.0:
            return None
        return 100.0 * min(max(spent_s / total_s, 0.0), 1.0)  # ticks of 10 ms may be out of step

    others = None
    if before.ours_s is not None and after.ours_s is not None:
        ours_s = after.ours_s - before.ours_s
        others = percent(after.processes_s - before.processes_s - ours_s)
    return {
        "cpu_percent": percent(total_s - (after.idle_s - before.idle_s)),
        "other_cpu_percent": others,
        "stolen_cpu_percent": percent(after.stolen_s - before.stolen_s),
    }


def quota_use(before: MachineReading, after: MachineReading) -> dict[str, float]:
    """Effect of the CPU quota between two readings, by names in `HostUse`; empty without one."""
    then, now = before.throttling, after.throttling
    if then is None or now is None or now.periods <= then.periods:
        return {}
    share = (now.throttled - then.throttled) / (now.periods - then.periods)
    return {"throttled_percent": 100.0 * share, "throttled_s": now.time_s - then.time_s}


@dataclass(frozen=True)
class GpuClocks:
    """Clocks of the GPUs that were working at one moment.

    Attributes:
        lowest_mhz: SM clock of the slowest GPU.
        throttled: Heat or a power fault lowers some GPU's clocks.
    """

    lowest_mhz: float
    throttled: bool


ReadClocks = Callable[[], GpuClocks | None]


@contextmanager
def gpu_clocks(gpus: Gpus = "all") -> Iterator[ReadClocks]:
    """A function that reads the clocks while the context is open; it returns None without NVML.

    It reads only ``gpus``: other GPUs do not disturb this server.
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
        except nvml.NVMLError:  # not every card and driver reports it
            continue
        if not why & _IDLE:
            clocks.append(float(clock))
            reasons |= why
    return GpuClocks(min(clocks), bool(reasons & _THROTTLE_REASONS)) if clocks else None


@dataclass
class Stalls:
    """Stalls of the watched cores; complete once the context has ended."""

    cores: int = 0
    spans_ns: Sequence[tuple[int, int]] = field(default_factory=list)

    def percent(self, start_ns: int, end_ns: int) -> float | None:
        """Percent of the time of all cores; None if no core could be watched."""
        if not self.cores or end_ns <= start_ns:
            return None
        inside = sum(max(min(b, end_ns) - max(a, start_ns), 0) for a, b in self.spans_ns)
        return 100.0 * min(inside / (self.cores * (end_ns - start_ns)), 1.0)


#: For loads without a stall meter.
NOT_WATCHED = Stalls()


def shortest_s(bound: Slo) -> float:
    """The shortest stall that counts."""
    return max(PART_OF_SLO * bound.within_s, LEAST_S)


def quiet_percent(bound: Slo) -> float:
    """Percent of the time that stalls may take on a quiet machine."""
    return 100.0 * PART_OF_ALLOWANCE * (1.0 - bound.share)


@contextmanager
def watch_stalls(bound: Slo) -> Iterator[Stalls]:
    """Watches while the context is open; ``bound``: the tightest latency SLO."""
    least_s = shortest_s(bound)
    times_ns = [str(round(1e9 * s)) for s in (min(least_s, _LONGEST_SLEEP_S), least_s)]
    stalls = Stalls()
    with tempfile.TemporaryFile() as seen:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", stall_meter.__file__, *times_ns],
            stdin=subprocess.PIPE,
            stdout=seen,
            stderr=subprocess.DEVNULL,
            process_group=0,  # so that Ctrl-C does not reach it
        ):
            yield stalls
        seen.seek(0)
        lines = [[int(word) for word in line.split()] for line in seen.read().splitlines()]
    stalls.cores = next((line[0] for line in lines if len(line) == 1), 0)
    stalls.spans_ns = sorted((line[0], line[1]) for line in lines if len(line) == 2)


def disturbances(measurement: Measurement, bound: Slo = NO_BOUND) -> tuple[Reason, ...]:
    """What disturbed the measurement, one reason each.

    Values that could not be read (``None``) count as undisturbed. Steal time counts if it shows as
    stalls.
    """
    host, reasons, limit = measurement.host, list[Reason](), quiet_percent(bound)
    if (host.throttled_percent or 0.0) > limit:
        facts: dict[str, Fact] = {
            "quota_cpus": host.quota_cpus or 0.0,
            "throttled_percent": host.throttled_percent or 0.0,
            "throttled_s": host.throttled_s or 0.0,
            "limit_percent": limit,
        }
        reasons.append(Reason(ReasonKind.QUOTA_USED_UP, facts=facts))
    elif (host.stalled_percent or 0.0) > limit:
        facts = {
            "stalled_percent": host.stalled_percent or 0.0,
            "shortest_ms": 1e3 * shortest_s(bound),
            "limit_percent": limit,
        }
        reasons.append(Reason(ReasonKind.MACHINE_PAUSED, facts=facts))
    limit = OTHER_CPU_PERCENT
    if (host.other_cpu_percent or 0.0) > limit:
        facts = {"other_cpu_percent": host.other_cpu_percent or 0.0, "limit_percent": limit}
        reasons.append(Reason(ReasonKind.OTHER_PROCESSES, facts=facts))
    return tuple(reasons)


def taken_percent(measurement: Measurement) -> float:
    """Percent of this machine that was not available to the server and its client."""
    host = measurement.host
    return (host.stalled_percent or 0.0) + (host.other_cpu_percent or 0.0)
