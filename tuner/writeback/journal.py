"""The journal of writes to the configs of a repository; it also is the repository's lock."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from tuner.errors import EnvironmentNotReadyError
from tuner.facts import Facts, is_empty
from tuner.locking import Lock, lock
from tuner.modelconfig.files import is_model_name
from tuner.spec.mistakes import dotted, reason_of
from tuner.spec.paths import CONFIG_NAMES
from tuner.writeback.files import (
    explained,
    keep_ownership,
    read_plain,
    refuse_unwritable,
    write_all,
)
from tuner.writing import sync_directory

_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def journal_of(repository: Path) -> Path:
    """The path of the journal, a regular file: Triton would take a directory for a model."""
    return repository.resolve() / ".tune.journal"


class Action(Enum):
    """What an entry records; DONE and UNDONE end the preceding write or rollback."""

    APPLY = "apply"
    ROLLBACK = "rollback"
    DONE = "done"
    UNDONE = "undone"


def _config_path(path: str) -> str:
    model, _, config = path.partition("/")
    if not (is_model_name(model) and CONFIG_NAMES.fullmatch(config)):
        raise ValueError("it is not the path of a config")
    return path


@dataclass(frozen=True)
class FileChange:
    """One file of a write; the path is relative to the repository, which may be moved."""

    path: Annotated[str, AfterValidator(_config_path)]
    sha256_before: _Sha256 | None
    sha256_after: _Sha256 | None

    @property
    def model(self) -> str:
        return self.path.partition("/")[0]


@dataclass(frozen=True)
class Entry(Facts):
    """A write or a rollback, recorded before it happens, or its end.

    Attributes:
        action: What the entry records.
        at: Time in ISO 8601.
        run_id: The run whose winner is written or taken back.
        files: All files that are replaced together; empty in the entry of an end.
    """

    action: Action
    at: str
    run_id: str
    files: Annotated[tuple[FileChange, ...], Field(exclude_if=is_empty)] = ()

    def taken_back(self) -> Entry:
        """The rollback of this write."""
        files = (
            replace(c, sha256_before=c.sha256_after, sha256_after=c.sha256_before)
            for c in self.files
        )
        return replace(self, action=Action.ROLLBACK, files=tuple(files))

    @classmethod
    def from_line(cls, line: bytes) -> Entry:
        """Parses a line of the journal.

        Raises:
            ValueError: tune did not write this line.
        """
        try:
            entry = cls.from_json(json.loads(line))
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{dotted(first['loc']) or 'line'}: {reason_of(first)}") from None
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if bool(entry.files) is (entry.action in (Action.DONE, Action.UNDONE)):
            raise ValueError("a write has files, and its end has none")
        return entry


@dataclass(frozen=True)
class Noted:
    """A write or a rollback, and its end; ``None`` if a kill or a failure left it incomplete."""

    entry: Entry
    end: Action | None


class Journal:
    """An open, locked journal; only `locked_journal` makes one."""

    def __init__(self, path: Path, descriptor: int, notes: tuple[str, ...]) -> None:
        self.notes = notes
        self._path = path
        self._descriptor = descriptor

    def newest_first(self) -> Iterator[Noted]:
        """Reads the file at once, and parses entries on demand, newest first.

        Raises:
            EnvironmentNotReadyError: The file cannot be read, or an entry is damaged.
        """
        with explained(self._path):
            content = self._content()
        return _newest_first(self._path, content)

    def note_end(self, entry: Entry, end: Action) -> None:
        """Records the end; ignores failures, since it only matters after changes by hand."""
        with contextlib.suppress(EnvironmentNotReadyError):
            self.append(replace(entry, action=end, files=()))

    def append(self, entry: Entry) -> None:
        """Adds an entry, replaces an incomplete one, and waits until it is on disk."""
        with explained(self._path):
            os.ftruncate(self._descriptor, self._content().rfind(b"\n") + 1)
            write_all(self._descriptor, json.dumps(entry.to_json()).encode() + b"\n")
            os.fsync(self._descriptor)

    def _content(self) -> bytes:
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)


def look(repository: Path) -> Iterator[Noted]:
    """Like `Journal.newest_first`, but without the lock; empty without a journal."""
    path = journal_of(repository)
    with explained(path):
        content = read_plain(path)
    return _newest_first(path, content or b"")


def _newest_first(path: Path, content: bytes) -> Iterator[Noted]:
    """Entries; text after the last newline is incomplete and belongs to a write never begun."""
    lines = content.split(b"\n")[:-1]
    end = None
    for number in range(len(lines), 0, -1):
        try:
            entry = Entry.from_line(lines[number - 1])
        except ValueError as error:
            raise EnvironmentNotReadyError(
                f"{path}:{number}: the journal is damaged ({error}); nothing was written",
                "restore the config by hand: its backups are next to it, as "
                ".config.pbtxt.tune.*.bak; then move the journal away",
            ) from None
        if not entry.files:
            end = entry.action
            continue
        yield Noted(entry, end)
        end = None


@contextlib.contextmanager
def locked_journal(repository: Path) -> Iterator[Journal]:
    """The journal of a repository, locked against every other tune inside the context.

    The lock is on the journal file, so it ends with the process that has it.

    Raises:
        EnvironmentNotReadyError: The repository is not writable, or another process has the lock.
    """
    path = journal_of(repository)
    with explained(path):
        descriptor = _opened(path)
    try:
        with explained(path):
            notes = _lock(descriptor, path.parent)
        yield Journal(path, descriptor, notes)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Opens the file; refuses a link or a pipe, which another user may have created."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _existing(path, flags)
    try:
        keep_ownership(path.parent, descriptor)  # users of the repository may use its journal
        os.fchmod(descriptor, os.fstat(descriptor).st_mode & 0o664)
        sync_directory(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _existing(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags)
    except PermissionError as error:
        raise _not_ours(path) from error
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _no_journal(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_journal(path)
    return descriptor


def refuse_unwritable_journal(repository: Path) -> None:
    """Checks that the journal can be opened, or created; changes nothing.

    Raises:
        EnvironmentNotReadyError: It cannot.
    """
    path = journal_of(repository)
    with explained(path):
        if not os.path.lexists(path):
            refuse_unwritable(path.parent)
        elif not stat.S_ISREG(path.lstat().st_mode):
            raise _no_journal(path)
        elif not os.access(path, os.R_OK | os.W_OK):
            raise _not_ours(path)


def _not_ours(path: Path) -> EnvironmentNotReadyError:
    text = f"cannot write {path}: {os.strerror(errno.EACCES)}"
    return EnvironmentNotReadyError(text, f"have its owner run: chmod g+w {path}")


def _no_journal(path: Path) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"{path} is not a journal of tune but a link, a pipe or a directory; nothing was written",
        "find out who put it there, and remove it",
    )


def _lock(descriptor: int, repository: Path) -> tuple[str, ...]:
    """Locks the journal; returns notes for the user."""
    state = lock(descriptor)
    if state is Lock.BUSY:
        raise EnvironmentNotReadyError(
            f"another tune is writing to {repository}", "try again when it has ended"
        )
    if state is Lock.UNKNOWN:
        advice = "make sure that no other tune writes to it now"
        return (f"{repository} does not support locks: {advice}",)
    return ()
