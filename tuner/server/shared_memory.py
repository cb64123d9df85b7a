"""Shared memory of a local server: tensors of requests, and regions of its Python backend.

A server maps the region of requests when it is registered. Its name is then removed at once, so
that the kernel frees the memory when the last process with the mapping ends for any reason. The
regions of the backend keep their names, and remain if all processes are killed at once.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.locking import Lock, lock

SHM = "/dev/shm"  # noqa: S108 - where POSIX shared memory lives on Linux
#: Size of a region; it uses only as much of /dev/shm as is written.
REGION_BYTES = 1 << 30
_SUFFIX = "requests"
_OWNER = "owner"
_OWNED = re.compile(rf"(?P<prefix>tune-(?P<pid>\d+)-[0-9a-f]{{16}}-){_OWNER}")


@dataclass(frozen=True)
class SharedRegion:
    """A region of shared memory; ``name``: its registered name and its file name in `/dev/shm`."""

    name: str
    descriptor: int = field(repr=False)

    @property
    def path(self) -> Path:
        return Path(SHM, self.name)

    def hide(self) -> None:
        """Removes the file; processes that have mapped the region keep it."""
        self.path.unlink(missing_ok=True)

    def write(self, offset: int, content: bytes) -> None:
        """Writes ``content`` at ``offset``; raises `OSError` if `/dev/shm` is full."""
        while content:
            written = os.pwrite(self.descriptor, content, offset)
            offset, content = offset + written, content[written:]

    def reserve(self, size: int) -> None:
        """Allocates the first ``size`` bytes; raises `OSError` if `/dev/shm` is full.

        A server that writes to memory which cannot be allocated is killed.
        """
        os.posix_fallocate(self.descriptor, 0, size)

    def clear(self) -> None:
        """Frees the memory of the region, which then reads as zeros."""
        with mmap.mmap(self.descriptor, REGION_BYTES) as mapped:
            mapped.madvise(mmap.MADV_REMOVE)


@contextmanager
def shm_names() -> Iterator[str]:
    """A prefix for the names of a server's files in `/dev/shm`.

    A locked empty file marks the prefix as used while the context is open. Also removes the files
    of killed processes.
    """
    _remove_abandoned()
    prefix = f"tune-{os.getpid()}-{secrets.token_hex(8)}-"
    path = Path(SHM, prefix + _OWNER)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        lock(descriptor)
        yield prefix
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def shared_region(prefix: str) -> Iterator[SharedRegion]:
    """A new empty region; its memory is freed on leaving the context."""
    name, new = prefix + _SUFFIX, os.O_RDWR | os.O_CREAT | os.O_EXCL
    region = SharedRegion(name, os.open(Path(SHM, name), new, 0o600))
    try:
        os.ftruncate(region.descriptor, REGION_BYTES)
        yield region
    finally:
        region.hide()
        os.close(region.descriptor)


def _remove_abandoned() -> None:
    """Removes the files of prefixes whose process has ended and whose marker is not locked.

    Both conditions are needed: the process id may belong to another container, and a living process
    may not have locked its marker yet.
    """
    for path in Path(SHM).glob(f"tune-*-{_OWNER}"):
        with suppress(OSError):  # of another user, or already removed
            if not (match := _OWNED.fullmatch(path.name)) or Path("/proc", match["pid"]).exists():
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                ours = os.fstat(descriptor).st_uid == os.geteuid()
                if ours and lock(descriptor) is Lock.ACQUIRED:
                    for left in Path(SHM).glob(f"{match['prefix']}*"):
                        left.unlink(missing_ok=True)
            finally:
                os.close(descriptor)
