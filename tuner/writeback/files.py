"""Replacing and removing a file so that a crash leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError


def read_bytes(path: Path) -> bytes | None:
    """The file's content, or ``None`` when there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def sha256_of_bytes(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def sha256_or_none(content: bytes | None) -> str | None:
    """SHA-256 in hex; ``None`` for a file that is not there."""
    return None if content is None else sha256_of_bytes(content)


def replace_file(path: Path, content: bytes) -> None:
    """Makes ``path`` hold ``content``: all of it, or, after a crash, all of what it held before.

    A new file beside it is filled, synced and renamed over it; permissions, owner and extended
    attributes are those of the file it replaces. A symbolic link stays a link: its target is
    replaced. The caller holds the lock, so the temporary name may be fixed, and what a killed
    process left behind is overwritten. The name starts with a dot and is gone within
    milliseconds, since any file in a model's directory counts as a change of the model.

    Raises:
        OSError: The old file is still there (or, if only the last sync failed, the new one).
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.tune.tmp")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if target.exists():
                _copy_ownership(target, descriptor)
            os.fsync(descriptor)
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


def remove_file(path: Path) -> None:
    """Removes ``path`` for good (synced); nothing happens when it is not there."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """A rename is only safe from a power cut once its directory is on disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_ownership(source: Path, descriptor: int) -> None:
    status = source.stat()
    mine = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (mine.st_uid, mine.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, status.st_mode & 0o7777)  # after the owner: chown drops set-id bits
    for name in os.listxattr(source):  # access control lists among them
        with contextlib.suppress(OSError):  # labels only the system may set
            os.setxattr(descriptor, name, os.getxattr(source, name))


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an operating system error while writing ``path`` into one that says what to do."""
    try:
        yield
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"cannot write {path}: {error.strerror or error}",
            f"make {path.parent} writable for this user with space left, then apply the run "
            "again; the config to write is in the run's best/config.pbtxt",
        ) from error
