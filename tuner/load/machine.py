"""What this machine's CPUs are doing, split into our own processes and all others."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from tuner.triton.host import read_governor


@dataclass(frozen=True)
class MachineReading:
    """CPU seconds since boot, over all cores, at one moment.

    Attributes:
        processes_s: Spent by processes, ours and others; interrupts belong to none.
        ours_s: Spent by this process and all its descendants, the ended ones included; None
            when the server is not among them.
        stolen_s: Given to other guests by the hypervisor.
    """

    total_s: float
    idle_s: float
    processes_s: float
    stolen_s: float
    ours_s: float | None
    load_1m: float
    governor: str | None


def read_machine(*, ours: bool) -> MachineReading:
    """Reads it now; ``ours`` only where the server is a child of this process.

    Looking for the children costs about 25 us for each process of the machine (2 ms with 75).
    """
    own = _tree_s(psutil.Process()) if ours else None
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
    """Of all cores, 0..100."""
    return _percent(before, after, after.total_s - after.idle_s - before.total_s + before.idle_s)


def other_percent(before: MachineReading, after: MachineReading) -> float | None:
    """Of all cores, 0..100, by processes that are not ours; None where ours are not known."""
    if before.ours_s is None or after.ours_s is None:
        return None
    ours_s = after.ours_s - before.ours_s
    return _percent(before, after, after.processes_s - before.processes_s - ours_s)


def stolen_percent(before: MachineReading, after: MachineReading) -> float | None:
    """Of all cores, 0..100."""
    return _percent(before, after, after.stolen_s - before.stolen_s)


def _percent(before: MachineReading, after: MachineReading, spent_s: float) -> float | None:
    total_s = after.total_s - before.total_s
    if total_s <= 0.0:
        return None
    return 100.0 * min(max(spent_s / total_s, 0.0), 1.0)  # ticks of 10 ms can cross


def _tree_s(root: psutil.Process) -> float:
    """CPU seconds of a process and its descendants.

    A process that ended is in its parent's ``children_*`` once it was waited for, so the sum does
    not fall when one ends.
    """
    seconds = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
