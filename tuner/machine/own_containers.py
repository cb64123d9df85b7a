"""Containers that this process runs, and which processes of this machine are theirs."""

from __future__ import annotations

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
