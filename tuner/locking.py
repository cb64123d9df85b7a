"""Advisory locks, which some file systems do not support."""

from __future__ import annotations

import errno
import fcntl
from enum import Enum

#: What `flock` answers where locks are not kept, or not for a file opened for reading.
_UNKNOWN = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.EBADF}


class Lock(Enum):
    """The outcome of asking for a lock."""

    HELD = "held"  # until the descriptor is closed, or its process dies
    HELD_BY_ANOTHER = "held by another"
    UNKNOWN = "unknown"  # this file system has no locks: nobody holds one, and nobody can


def lock(descriptor: int, *, shared: bool = False) -> Lock:
    """Asks for the lock of an open file or directory, without waiting.

    Raises:
        OSError: Anything else than a lock held by another, or a file system without locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.HELD_BY_ANOTHER
    except OSError as error:
        if error.errno in _UNKNOWN:
            return Lock.UNKNOWN
        raise
    return Lock.HELD
