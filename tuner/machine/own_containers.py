"""Containers that this process runs, which processes are theirs, and who started one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PROC = Path("/proc")
_running: list[str] = []


@contextmanager
def known_as_own(container_id: str) -> Iterator[None]:
    """While the context is open the container's processes count as ours."""
    _running.append(container_id)
    try:
        yield
    finally:
        _running.remove(container_id)


def is_inside(pid: int) -> bool:
    """Whether a process runs in one of them.

    Docker and Podman put a container's processes in a control group with the container's id in its
    name (``docker-ID.scope``, ``libpod-ID.scope``, ``docker/ID``). False for all where the engine
    is on another machine, in a virtual one, or where this process sees no others.
    """
    if not _running:
        return False
    with suppress(OSError):
        groups = (_PROC / str(pid) / "cgroup").read_text()
        return any(container_id in groups for container_id in _running)
    return False


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_TIME = 19  # of the fields after the name in proc_pid_stat(5), in clock ticks since boot


def current_owner() -> str:
    """Us: boot, PID namespace, process id, start time."""
    pid = os.getpid()
    return f"{_boot()} {_namespace()} {pid} {_started(pid)}"


def owner_gone(owner: str, *, ended: bool) -> bool:
    """Whether the process has ended for certain; False when that cannot be seen from here.

    Args:
        ended: Its container runs no more. One of another boot that runs is another machine's on
            the same engine: after a reboot of this one, none would.
    """
    try:
        boot, namespace, pid, started = owner.split()
        number = int(pid)
    except ValueError:
        return False  # not written by `current_owner`
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
