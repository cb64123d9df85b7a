"""Replaces and removes files so that a crash leaves the old file or the complete new one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.writing import sync_directory

#: Errors of file systems without extended attributes; shutil ignores the same.
_NO_XATTR = {errno.ENOTSUP, errno.ENOSYS, errno.ENODATA, errno.EINVAL}
#: Errors of a change of owner: only root may do that, and some file systems have no owners.
_NOT_MINE_TO_GIVE = {errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}


def keep_ownership(source: Path, descriptor: int) -> list[str]:
    """Gives the open file the owner, mode and attributes of ``source``, as far as allowed.

    Returns:
        What could not be kept, one sentence each.

    Raises:
        OSError: The file system fails.
    """
    status = source.stat()
    notes = _chown(descriptor, status)
    mode = status.st_mode & (0o777 if notes else 0o7777)  # no set-id bits for another owner
    if os.fstat(descriptor).st_gid != status.st_gid:
        mode &= ~0o070 | (mode & 0o007) << 3  # another group gets the rights of all others only
    notes += _copy_xattr(source, descriptor)  # before the mode, which may forbid it
    os.fchmod(descriptor, mode)  # after the owner: chown clears set-id bits
    return notes


def _chown(descriptor: int, wanted: os.stat_result) -> list[str]:
    """Sets owner and group, else the group only, else neither; what could not be kept."""
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
    """Copies extended attributes, including access control lists; what could not be kept."""
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


def read_plain(path: Path) -> bytes | None:
    """Content of a file of tune; ``None`` if it does not exist, or is not a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def sha256_of_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_or_none(content: bytes | None) -> str | None:
    return None if content is None else sha256_of_bytes(content)


def replace_file(path: Path, content: bytes, like: Path) -> list[str]:
    """Replaces the content of ``path``; after a crash, the file has the old or the new content.

    Arguments and result are those of `stage_file`.

    Raises:
        OSError: The old file is still there (or, if only the last sync failed, the new one).
    """
    notes = stage_file(path, content, like)
    try:
        rename_staged(path)
    except BaseException:
        drop_staged(path)
        raise
    return notes


def stage_file(path: Path, content: bytes, like: Path) -> list[str]:
    """Writes and syncs a new file next to ``path``; `rename_staged` then replaces ``path`` with it.

    The caller has the lock, so the temporary name may be fixed, and a killed process's file is
    overwritten. The name starts with a dot and exists for milliseconds only, since any file in a
    model's directory counts as a change of the model.

    Args:
        path: The file to be replaced.
        like: A file with the wanted permissions, owner and extended attributes; defaults apply if
            it does not exist.

    Returns:
        Which of these could not be kept, one sentence each.

    Raises:
        OSError: The new file could not be written, and is removed.
    """
    temporary = _temporary(path)
    try:
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(temporary, flags, 0o600 if like.exists() else 0o666)
        try:
            write_all(descriptor, content)
            notes = keep_ownership(like, descriptor) if like.exists() else []
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        drop_staged(path)
        raise
    return notes


def rename_staged(path: Path) -> None:
    """Replaces ``path`` with the staged file, and syncs.

    Links are not followed: a link at ``path`` is replaced.
    """
    _temporary(path).replace(path)
    sync_directory(path.parent)


def drop_staged(path: Path) -> None:
    """Removes a staged file, if any; ignores failures, since a later write overwrites the file."""
    with contextlib.suppress(OSError):
        _temporary(path).unlink()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tune.tmp")


def remove_file(path: Path) -> None:
    """Removes ``path``, and syncs."""
    path.unlink()
    sync_directory(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Writes all bytes; a single system call may write only some of them."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def refuse_unwritable(directory: Path) -> None:
    """Checks that a file can be created in a directory; changes nothing.

    Raises:
        OSError: It cannot.
    """
    if not os.access(directory, os.W_OK | os.X_OK):
        read_only = os.statvfs(directory).f_flag & os.ST_RDONLY
        code = errno.EROFS if read_only else errno.EACCES
        raise OSError(code, os.strerror(code), str(directory))


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Converts an operating system error while writing ``path`` into one with advice."""
    try:
        yield
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"cannot write {path}: {error.strerror or error}",
            f"make {path.parent} writable for this user with space left, then try again; "
            "a winner's config is also in its run's best/",
        ) from error
