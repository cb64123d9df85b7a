"""Memory that a server of ours shares: the inputs of requests, and its Python backend's regions.

A server maps the region of requests when it is registered, and then needs its name no more: it is
removed at once, so that the memory is free when the last process that has it ends, whatever ends
it. The backend's regions keep their names, and stay where all processes are killed at once.
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
#: What a region has room for; of /dev/shm it takes only what is written.
REGION_BYTES = 1 << 30
_SUFFIX = "requests"
_OWNER = "owner"
_OWNED = re.compile(rf"(?P<prefix>tune-(?P<pid>\d+)-[0-9a-f]{{16}}-){_OWNER}")


@dataclass(frozen=True)
class SharedRegion:
    """A region, registered under its name, which is also that of its file in `/dev/shm`."""

    name: str
    descriptor: int = field(repr=False)

    @property
    def path(self) -> Path:
        return Path(SHM, self.name)

    def hide(self) -> None:
        """Removes the name; who has mapped it keeps it."""
        self.path.unlink(missing_ok=True)

    def write(self, offset: int, content: bytes) -> None:
        """Raises `OSError` where `/dev/shm` has no room for it."""
        while content:
            written = os.pwrite(self.descriptor, content, offset)
            offset, content = offset + written, content[written:]

    def clear(self) -> None:
        """Gives all of it back; a request that still reads it reads zeros."""
        with mmap.mmap(self.descriptor, REGION_BYTES) as mapped:
            mapped.madvise(mmap.MADV_REMOVE)


@contextmanager
def shm_names() -> Iterator[str]:
    """The beginning of the names of all that a server of ours has in `/dev/shm`.

    An empty file of such a name is locked meanwhile; what a killed process left is removed on the
    way.
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
    """An empty region, whose memory is free again afterwards."""
    name, new = prefix + _SUFFIX, os.O_RDWR | os.O_CREAT | os.O_EXCL
    region = SharedRegion(name, os.open(Path(SHM, name), new, 0o600))
    try:
        os.ftruncate(region.descriptor, REGION_BYTES)
        yield region
    finally:
        region.hide()
        os.close(region.descriptor)


def _remove_abandoned() -> None:
    """Removes what is named like a file whose process lives no more and which nobody has locked.

    A process id alone may be another container's. One that is not locked yet has an owner that
    lives.
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
