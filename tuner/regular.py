"""Paths that may lead to something else than a file, or to nothing: read without ever waiting."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def read_regular(path: Path, at_most: int = -1) -> bytes:
    """A regular file, or its first ``at_most`` bytes.

    Raises:
        OSError: It cannot be read, or is no regular file; `strerror` says which.
    """
    with open_regular(path) as file:
        return file.read(at_most)


def read_limited(path: Path, most: int) -> bytes:
    """A regular file of at most so many bytes; raises as `read_regular` does, also if it has more.

    What is longer is not read to its end, and no more than that is kept in memory.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if size <= most else b""
    if max(size, len(data)) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20:,} MiB", str(path))
    return data


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file, open to be read piece by piece; raises as `read_regular` does."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "no file can have this name", str(path))
    refuse_what_is_no_file(path, path.stat().st_mode)  # opening a device may do something
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # never waits, also for a pipe
    with os.fdopen(descriptor, "rb") as file:
        refuse_what_is_no_file(path, os.fstat(descriptor).st_mode)
        yield file


def is_there(path: Path) -> bool:
    """Whether there is a file or a directory; False for names that are too long or have a NUL."""
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):
        return False


def refuse_what_is_no_file(path: Path, mode: int) -> None:
    """Raises OSError, of which `strerror` says what the path is, for a mode of no regular file."""
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise OSError(errno.EINVAL, f"it is {kind}", str(path))
