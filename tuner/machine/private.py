"""Temporary directories that do not pile up when their owners are killed.

Whatever a run keeps in a temporary directory belongs in one of these.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.locking import Lock, lock

#: Only directories made here have it: whatever has it and is not locked may be removed.
PREFIX = ".tune-private-"
_YOUNG_S = 60.0  # its owner may not have locked it yet


@contextmanager
def private_directory() -> Iterator[Path]:
    """A new directory for as long as the context is open.

    It is locked meanwhile; directories of ours that nobody holds are what a killed process left,
    and are removed on the way.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            lock(descriptor)
            yield Path(name)
        finally:
            os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, somebody else's, or gone by now
            if time.time() - directory.stat().st_mtime < _YOUNG_S:
                continue
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if lock(descriptor) is Lock.HELD:
                    shutil.rmtree(directory)
            finally:
                os.close(descriptor)
