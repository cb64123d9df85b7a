"""Memory of this machine from which a server of ours reads the inputs of requests.

A server maps a region when it is registered, and then needs its name no more: it is removed at
once, so that the memory is free when the last process that has it ends, whatever ends it.
"""

from __future__ import annotations

import mmap
import os
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


def shm_names() -> str:
    """How the names of what a server of ours has in `/dev/shm` begin."""
    return f"tune-{os.getpid()}-{secrets.token_hex(8)}-"


@contextmanager
def shared_region(prefix: str) -> Iterator[SharedRegion]:
    """An empty region, whose memory is free again afterwards.

    Names that a killed process left are removed on the way.
    """
    _remove_abandoned()
    name, new = prefix + _SUFFIX, os.O_RDWR | os.O_CREAT | os.O_EXCL
    region = SharedRegion(name, os.open(Path(SHM, name), new, 0o600))
    try:
        lock(region.descriptor)
        os.ftruncate(region.descriptor, REGION_BYTES)
        yield region
    finally:
        region.hide()
        os.close(region.descriptor)


def _remove_abandoned() -> None:
    """Their owner lives no more, and nobody holds them: a number alone may be another container's.

    One that is not locked yet has an owner that lives.
    """
    for path in Path(SHM).glob(f"tune-*-{_SUFFIX}"):
        with suppress(OSError):  # somebody else's, or gone by now
            if Path("/proc", path.name.split("-")[1]).exists():
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if lock(descriptor) is Lock.HELD:
                    path.unlink()
            finally:
                os.close(descriptor)
