"""Who started a container, so that a later run can tell whether that process is still alive.

A process id is not enough: ids are reused, and mean something else in another PID namespace (tune
in its own container, next to others, on one engine).
"""

from __future__ import annotations

import os
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 19  # of the fields after the name in proc_pid_stat(5), in clock ticks since boot


def current() -> str:
    """Us: boot, PID namespace, process id, start time."""
    pid = os.getpid()
    return f"{_boot()} {_namespace()} {pid} {_started(pid)}"


def gone(owner: str, *, ended: bool) -> bool:
    """Whether the process has ended for certain; False when that cannot be seen from here.

    Args:
        ended: Its container runs no more. One of another boot that runs is another machine's on
            the same engine: after a reboot of this one, none would.
    """
    try:
        boot, namespace, pid, started = owner.split()
        number = int(pid)
    except ValueError:
        return False  # not written by `current`
    if boot != _boot():
        return ended
    return namespace == _namespace() and _started(number) != started


def _boot() -> str:
    return _BOOT_ID.read_text().strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _started(pid: int) -> str:
    """Start time of a process; empty when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_TIME]
