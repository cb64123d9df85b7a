"""Writing the files of a run: whole or not at all, and nowhere else than into the run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tuner.errors import EnvironmentNotReadyError
from tuner.regular import refuse_what_is_no_file

#: A file system that cannot sync a directory says so by one of these.
_NO_DIRECTORY_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES}


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """The old file or the new one, never half; errors as of `write_text`."""
    write_text(path, json.dumps(data, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Like `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """The old file or the new one, never half, also after a power cut; a link is replaced.

    Raises:
        EnvironmentNotReadyError: It cannot be written, for instance since the disk is full.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".tune-{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(temporary, flags, 0o666)  # less what the umask takes
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def open_run_file(path: Path) -> BinaryIO:
    """A run's file, made if need be, open to be read, cut and added to; opening never waits.

    Raises:
        EnvironmentNotReadyError: It cannot be opened, or is a link, a pipe or a device.
    """
    _refuse_link(path, "file")
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with explained(path):
        descriptor = os.open(path, flags, 0o666)
        try:
            refuse_what_is_no_file(path, os.fstat(descriptor).st_mode)
            return os.fdopen(descriptor, "a+b")
        except BaseException:
            os.close(descriptor)
            raise


def run_subdirectory(run: Path, name: str) -> Path:
    """A run's directory for more files, made if need be.

    Raises:
        EnvironmentNotReadyError: It cannot be made, or leads out of the run.
    """
    directory = run / name
    _refuse_link(directory, "directory")
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


def _refuse_link(path: Path, kind: str) -> None:
    if path.is_symlink():
        raise EnvironmentNotReadyError(
            f"{path} is a link to {path.readlink()}: nothing is written through it",
            f"remove the link; tune makes the {kind}",
        )


def sync_directory(directory: Path) -> None:
    """A new name is safe from a power cut once its directory is on disk.

    Some file systems, such as SMB and FUSE ones, do not support this.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an operating system error while writing ``path`` into one that says what to do."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path | str, error: OSError) -> EnvironmentNotReadyError:
    """The error for a file that could not be written."""
    return EnvironmentNotReadyError(
        f"cannot write {path}: {(error.strerror or str(error)).lower()}",
        "free some space or make the directory writable, or name another with --output; "
        "`tune run --resume RUN` continues a run that had begun",
    )
