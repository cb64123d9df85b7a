"""Advisory locks, which some file systems do not support."""

from __future__ import annotations

import errno
import fcntl
from enum import Enum

#: What `flock` answers where locks are not kept, or not for a file opened for reading.
_UNKNOWN = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EBADF}


class Lock(Enum):
    """Outcome of an attempt to lock."""

    ACQUIRED = "acquired"  # until the descriptor is closed, or its process dies
    BUSY = "busy"
    UNKNOWN = "unknown"  # this file system has no locks


def lock(descriptor: int, *, shared: bool = False) -> Lock:
    """Tries to lock an open file or directory, without waiting.

    Raises:
        OSError: Any error other than a lock of another process, or a file system without locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.BUSY
    except OSError as error:
        if error.errno in _UNKNOWN:
            return Lock.UNKNOWN
        raise
    return Lock.ACQUIRED
