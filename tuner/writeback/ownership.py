"""A new file gets the permissions, owner and extended attributes of the one it replaces."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

#: A file system without extended attributes says so by one of these, as shutil takes it too.
_NO_XATTR = {errno.ENOTSUP, errno.ENOSYS, errno.ENODATA, errno.EINVAL}
#: Only root may give a file away, and some file systems know no owners.
_NOT_MINE_TO_GIVE = {errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}


def keep_ownership(source: Path, descriptor: int) -> list[str]:
    """Makes the open file like ``source``, as far as this user may.

    Returns:
        What could not be kept, one sentence each.

    Raises:
        OSError: The file system fails.
    """
    status = source.stat()
    notes = _chown(descriptor, status)
    mode = status.st_mode & (0o777 if notes else 0o7777)  # another owner's set-id is not ours
    if os.fstat(descriptor).st_gid != status.st_gid:
        mode &= ~0o070 | (mode & 0o007) << 3  # another group gets no more than all others had
    notes += _copy_xattr(source, descriptor)  # before the mode, which may forbid it
    os.fchmod(descriptor, mode)  # after the owner: chown drops set-id bits
    return notes


def _chown(descriptor: int, wanted: os.stat_result) -> list[str]:
    """The owner, else the group alone, else neither."""
    for uid, gid in ((wanted.st_uid, wanted.st_gid), (-1, wanted.st_gid)):
        mine = os.fstat(descriptor)
        if (mine.st_uid, mine.st_gid) == (wanted.st_uid, wanted.st_gid):
            return []
        try:
            os.fchown(descriptor, uid, gid)
        except OSError as error:
            if error.errno not in _NOT_MINE_TO_GIVE:
                raise
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) == (wanted.st_uid, wanted.st_gid):
        return []
    what = "" if mine.st_gid == wanted.st_gid else f", group {wanted.st_gid}"
    return [f"it now belongs to {_name(mine.st_uid)}, it was {_name(wanted.st_uid)}'s{what}"]


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _copy_xattr(source: Path, descriptor: int) -> list[str]:
    """Access control lists among them. Gives what could not be kept, of what users may set."""
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno not in _NO_XATTR:
            raise
        return []
    lost = []
    for name in names:
        try:
            os.setxattr(descriptor, name, os.getxattr(source, name))
        except OSError:
            if not name.startswith(("security.", "trusted.")):
                lost.append(f"its extended attribute {name} could not be kept")
    return lost
