"""Memory that a server uses: of its GPUs, of its machine, and shared memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.errors import ServerGoneError
from tuner.machine.host import gpu_memory
from tuner.machine.process import is_inside
from tuner.server.control import Metrics
from tuner.server.server import Place
from tuner.server.shared_memory import SHM
from tuner.spec.fields import Gpus

MACHINE = "memory"
_USED, _TOTAL = "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"
#: Triton reports the memory of its GPUs a second after its start (half of --metrics-interval-ms).
_FIRST_S = 1.5
_CGROUP = Path("/sys/fs/cgroup")
#: Files with limit and usage of the control group, in both versions, as seen in a container.
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


@dataclass(frozen=True)
class Memory:
    """The usage of one memory at one moment.

    Attributes:
        taken_bytes: Used by the server, or by all where the server's part is not known.
        others_bytes: Used by other processes, as far as it is known.
        total_bytes: Size of the memory.
    """

    taken_bytes: int
    others_bytes: int
    total_bytes: int

    @property
    def free_bytes(self) -> int:
        """Bytes that the server can use, including those that it uses now."""
        return max(self.total_bytes - self.others_bytes, 0)


#: Memories by name: ``memory``, ``/dev/shm``, ``memory of GPU-...``.
Memories = Mapping[str, Memory]


def taken(now: Memories, empty: Memories) -> Memories:
    """Usage since the reading ``empty``; what was in use then counts as others' usage."""
    memories = {}
    for name, before in empty.items():
        if name in now:
            more = max(now[name].taken_bytes - before.taken_bytes, 0)
            others = before.others_bytes + before.taken_bytes
            memories[name] = Memory(more, others, now[name].total_bytes)
    return memories


def is_of_gpu(name: str) -> bool:
    return name not in (MACHINE, SHM)


def read_memory(
    scrape: Callable[[], Metrics | None], place: Place, gpus: Gpus, *, patient: bool = False
) -> Memories:
    """Reads the current usage of all memories that can be read.

    The local driver reports the memory of GPUs and of MIG instances at once. Triton's metrics are
    up to a second old and have no MIG instances; they are used if the driver cannot be read.

    Args:
        scrape: Reads the server's metrics.
        gpus: GPUs of this machine that the server may use.
        patient: Wait for the first metrics of a server that has just started.
    """
    here = place is not Place.ELSEWHERE
    metrics = _scraped(scrape)
    by_driver = dict(gpu_memory(gpus)) if here else {}
    until = time.monotonic() + _FIRST_S
    while patient and not by_driver and metrics and time.monotonic() < until:
        if 0.0 not in metrics.values(_TOTAL):
            break
        time.sleep(_FIRST_S / 10)
        metrics = _scraped(scrape)
    by_server = gpu_use(metrics)
    # Triton lists the GPUs that it sees, perhaps not all, and no MIG instances.
    seen = {
        u: m
        for u, m in by_driver.items()
        if not by_server or u in by_server or u.startswith("MIG-")
    }
    memories = {
        f"memory of {uuid}": Memory(used, 0, total)
        for uuid, (used, total) in (seen or by_server).items()
    }
    if here:
        memories[MACHINE] = _of_machine(_processes(place))
    if place is Place.HERE:
        with suppress(OSError):
            shared = shutil.disk_usage(SHM)
            memories[SHM] = Memory(shared.used, 0, shared.total)
    return memories


def gpu_use(metrics: Metrics | None) -> Mapping[str, tuple[int, int]]:
    """Used and total bytes of GPUs by UUID, without those that Triton cannot read (MIG)."""
    used, totals = (
        {s.labels.get("gpu_uuid", ""): int(s.value) for s in metrics.samples if s.name == name}
        if metrics is not None
        else {}
        for name in (_USED, _TOTAL)
    )
    return {uuid: (used[uuid], total) for uuid, total in totals.items() if total and uuid in used}


def _scraped(scrape: Callable[[], Metrics | None]) -> Metrics | None:
    try:
        return scrape()
    except ServerGoneError:  # the next user of the server gets the error
        return None


def _processes(place: Place) -> list[psutil.Process]:
    """Processes of the server; without load, this process has no other children."""
    if place is Place.HERE:
        return psutil.Process().children(recursive=True)
    return [psutil.Process(pid) for pid in psutil.pids() if is_inside(pid)]


def _of_machine(processes: Iterable[psutil.Process]) -> Memory:
    """Memory of the machine; pages that several processes share count once."""
    taken = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess, OSError):
            try:
                taken += process.memory_full_info().pss
            except psutil.AccessDenied:  # a process of another user, in a container
                taken += process.memory_info().rss
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    for limit, current, statistics in _LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            most = int((_CGROUP / limit).read_text())
            rows = (row.split() for row in (_CGROUP / statistics).read_text().splitlines())
            cached = int(dict(rows)["inactive_file"])
            if most < total:
                total, free = most, most - int((_CGROUP / current).read_text()) + cached
    return Memory(taken, max(total - free - taken, 0), total)
