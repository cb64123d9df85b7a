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


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """A regular file, open to be read piece by piece; raises as `read_regular` does."""
    refuse_what_is_no_file(path, path.stat().st_mode)  # opening a device may do something
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # never waits, also for a pipe
    with os.fdopen(descriptor, "rb") as file:
        refuse_what_is_no_file(path, os.fstat(descriptor).st_mode)
        yield file


def is_there(path: Path) -> bool:
    """A file or a directory. Also asked of names that no file can have: too long."""
    try:
        return path.is_file() or path.is_dir()
    except OSError:
        return False


def refuse_what_is_no_file(path: Path, mode: int) -> None:
    """Raises OSError, of which `strerror` says what the path is, for a mode of no regular file."""
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise OSError(errno.EINVAL, f"it is {kind}", str(path))
