"""What was written to a model's config and what it replaced; also the lock around writing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from tuner.errors import EnvironmentNotReadyError
from tuner.facts import Facts
from tuner.locking import Lock, lock
from tuner.modelconfig.files import is_model_name
from tuner.spec.mistakes import dotted
from tuner.spec.paths import CONFIG_NAME, CONFIG_NAMES
from tuner.writeback.files import (
    explained,
    keep_ownership,
    read_plain,
    replace_file,
    sha256_of_bytes,
    write_all,
)
from tuner.writing import sync_directory

#: Backups of configs that tune wrote, at least.
KEPT = 20
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def journal_of(config: Path) -> Path:
    return config.with_name(f".{config.name}.tune.journal")


def configs_of(model: Path) -> list[Path]:
    """All configs that a model's directory has, or had when tune wrote them."""
    there = (path.name for path in model.glob("configs/*.pbtxt*"))
    names = {f"configs/{n.removeprefix('.').removesuffix('.tune.journal')}" for n in there}
    return [model / n for n in (CONFIG_NAME, *sorted(names)) if CONFIG_NAMES.fullmatch(n)]


class Action(Enum):
    """What an entry records.

    DONE and UNDONE follow the entry they belong to. An APPLY without either was never carried out
    if the file is still the one that was to be replaced.
    """

    APPLY = "apply"
    ROLLBACK = "rollback"
    DONE = "done"
    UNDONE = "undone"


#: What an entry about a file says of how it went.
_ENDS = {Action.DONE, Action.UNDONE}


def _model_name(name: str) -> str:
    if not is_model_name(name):
        raise ValueError("no model has such a name")
    return name


@dataclass(frozen=True)
class Other:
    """The part of another model's file in a write of several."""

    model: Annotated[str, AfterValidator(_model_name)]
    sha256_before: _Sha256 | None
    sha256_after: _Sha256 | None

    @property
    def hashes(self) -> tuple[str | None, str | None]:
        return self.sha256_before, self.sha256_after


@dataclass(frozen=True)
class Entry(Facts):
    """One file's part in a write, recorded before it happens: a crash cannot lose the way back.

    Attributes:
        action: A write, a rollback, or the outcome of the one recorded before.
        others: What is replaced together with it. Each of their journals has an entry of its own.
    """

    action: Action
    at: str
    run_id: str
    sha256_before: _Sha256 | None
    sha256_after: _Sha256 | None
    others: Annotated[tuple[Other, ...], Field(exclude_if=lambda others: not others)] = ()

    @property
    def hashes(self) -> tuple[str | None, str | None]:
        return self.sha256_before, self.sha256_after

    @classmethod
    def from_line(cls, line: bytes) -> Entry:
        """Raises:
        ValueError: tune did not write this line.
        """
        try:
            return cls.from_json(json.loads(line))
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{dotted(first['loc'])}: {first['msg']}") from None
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def is_of_the_write_of(self, other: Entry) -> bool:
        """Whether two entries, of the journals of two files, are about one write."""
        return (self.action, self.at, self.run_id) == (other.action, other.at, other.run_id)


class Journal:
    """An open, locked journal; made by `locked_journal` only."""

    def __init__(self, config: Path, descriptor: int, notes: tuple[str, ...]) -> None:
        self.notes = notes
        self._config = config
        self._descriptor = descriptor

    def last(self, found: str | None) -> Entry | None:
        """The newest write or rollback, where ``found`` is the hash of the config that is there.

        Passes over writes that were noted but, after a crash or a failure, never made or undone;
        when there is nothing else, the newest of them.

        Raises:
            EnvironmentNotReadyError: An entry that is needed is damaged.
        """
        never_made = None
        for entry, end in _with_ends(self._newest_first()):
            of_old = entry.action is Action.APPLY and found == entry.sha256_before
            if end is Action.UNDONE or (end is None and of_old):
                never_made = never_made or entry
            else:
                return entry
        return never_made

    def unended(self) -> Entry | None:
        """The newest entry, if it is of several files and nothing says how that went."""
        return _unended(_with_ends(self._newest_first()))

    def note_end(self, entry: Entry, end: Action) -> None:
        """It only matters should a file be changed by hand, so it may fail."""
        with contextlib.suppress(OSError):
            self.append(replace(entry, action=end))

    def append(self, entry: Entry) -> None:
        """Adds an entry, in place of one that a crash cut short, and waits until it is on disk."""
        whole = self._content().rfind(b"\n") + 1
        os.ftruncate(self._descriptor, whole)
        write_all(self._descriptor, json.dumps(entry.to_json()).encode() + b"\n")
        os.fsync(self._descriptor)

    def keep(self, content: bytes) -> Path:
        """Stores a backup, named by its hash, and gives its path; the same content only once."""
        path = self.backup(sha256_of_bytes(content))
        if read_plain(path) != content:
            replace_file(path, content, like=self._config)
        return path

    def kept(self, sha256: str) -> bytes:
        """The backup with this hash.

        Raises:
            EnvironmentNotReadyError: It is missing or damaged.
        """
        content = read_plain(self.backup(sha256))
        if content is None or sha256_of_bytes(content) != sha256:
            raise EnvironmentNotReadyError(
                f"the backup {self.backup(sha256)} is missing or damaged; nothing was written",
                "restore the config by hand: the run's manifest.json holds it as config_text",
            )
        return content

    def prune(self) -> None:
        """Removes backups of what tune wrote that are older than the newest `KEPT`, by the journal.

        What anybody else wrote stays, the first config above all. Where the journal is damaged,
        all do. The write is done by now, so this may fail.
        """
        with contextlib.suppress(OSError, EnvironmentNotReadyError):
            entries = list(self._newest_first())
            newest = (sha256 for entry in entries for sha256 in entry.hashes if sha256)
            there = [path for path in dict.fromkeys(map(self.backup, newest)) if path.exists()]
            own = set(map(self.backup, _written_by_tune(entries)))
            for path in own.intersection(there[KEPT:]):
                path.unlink()

    def _newest_first(self) -> Iterator[Entry]:
        return _newest_first(self._config, self._content())

    def _content(self) -> bytes:
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)

    def backup(self, sha256: str) -> Path:
        return self._config.with_name(f".{self._config.name}.tune.{sha256[:16]}.bak")


def newest(config: Path) -> Entry | None:
    """The newest write or rollback, without the lock; ``None`` where that cannot be read."""
    return next((entry for entry, _ in _looked_at(config)), None)


def is_written_by(run_id: str, config: Path) -> bool:
    """Whether the config is what that run wrote last; not so where that cannot be read."""
    with contextlib.suppress(OSError, RuntimeError):  # a link that leads nowhere
        real = config.resolve()
        entry, content = newest(real), read_plain(real)
        if entry is not None and content is not None:
            by_run = entry.action is Action.APPLY and entry.run_id == run_id
            return by_run and entry.sha256_after == sha256_of_bytes(content)
    return False


def left_unended(config: Path) -> Entry | None:
    """Finds what `Journal.unended` does, without the lock; ``None`` if that cannot be read."""
    return _unended(_looked_at(config))


def _looked_at(config: Path) -> Iterator[tuple[Entry, Action | None]]:
    with contextlib.suppress(OSError, EnvironmentNotReadyError):
        if (content := read_plain(journal_of(config))) is not None:
            yield from _with_ends(_newest_first(config, content))


def _with_ends(newest_first: Iterable[Entry]) -> Iterator[tuple[Entry, Action | None]]:
    """Each write or rollback, with what was noted of how it went."""
    end = None
    for entry in newest_first:
        if entry.action in _ENDS:
            end = entry.action
        else:
            yield entry, end
            end = None


def _unended(newest_first: Iterable[tuple[Entry, Action | None]]) -> Entry | None:
    """A damaged entry counts as none here, and is reported where it is needed."""
    with contextlib.suppress(EnvironmentNotReadyError):
        for entry, end in newest_first:
            return entry if entry.others and end is None else None
    return None


def _written_by_tune(newest_first: Sequence[Entry]) -> set[str]:
    """Hashes of winners, without those of configs that were there before tune wrote them."""
    own: set[str | None] = set()
    foreign: set[str | None] = {None}
    for entry in reversed(newest_first):
        foreign |= {entry.sha256_before} - own
        own |= {entry.sha256_after} if entry.action is Action.APPLY else set()
    return {sha256 for sha256 in own - foreign if sha256}


def _newest_first(config: Path, content: bytes) -> Iterator[Entry]:
    """What follows the last newline was cut short: it belongs to a write never begun."""
    lines = content.split(b"\n")[:-1]
    for number in range(len(lines), 0, -1):
        try:
            yield Entry.from_line(lines[number - 1])
        except ValueError as error:
            raise EnvironmentNotReadyError(
                f"{journal_of(config)}:{number}: the journal is damaged ({error}); "
                "nothing was written",
                "put the config back by hand: its backups are next to it, as "
                f".{config.name}.tune.*.bak",
            ) from None


@contextlib.contextmanager
def locked_journal(config: Path) -> Iterator[Journal]:
    """The journal of a config, locked against every other tune until the context is left.

    The lock is the journal's own, so it vanishes with the process that holds it.

    Args:
        config: The file itself, no link to it.

    Raises:
        EnvironmentNotReadyError: The directory is not writable, or the lock is held.
    """
    path = journal_of(config)
    with explained(path):
        descriptor = _opened(path, config)
    try:
        with explained(path):
            notes = _lock(descriptor, config)
        yield Journal(config, descriptor, notes)
    finally:
        os.close(descriptor)


def _opened(path: Path, config: Path) -> int:
    """A link or a pipe of this name, which somebody else put there, is not followed."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(
            path, flags | os.O_CREAT | os.O_EXCL, 0o600 if config.exists() else 0o644
        )
    except FileExistsError:
        return _existing(path, flags)
    try:
        _as_open_as(config, descriptor)
        sync_directory(path.parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _existing(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags)
    except PermissionError as error:
        raise EnvironmentNotReadyError(
            f"cannot write {path}: {error.strerror}", f"have its owner run: chmod g+w {path}"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _no_journal(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_journal(path)
    return descriptor


def _no_journal(path: Path) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"{path} is not a journal of tune but a link, a pipe or a directory; nothing was written",
        "find out who put it there, and remove it",
    )


def _as_open_as(config: Path, descriptor: int) -> None:
    """A new journal: read by whom the config is, written by whom may replace that."""
    if config.exists():
        keep_ownership(config, descriptor)
    journal, directory = os.fstat(descriptor), config.parent.stat()
    mode = journal.st_mode & 0o666
    if directory.st_mode & 0o020 and directory.st_gid == journal.st_gid and mode & 0o040:
        mode |= 0o020
    os.fchmod(descriptor, mode)


def _lock(descriptor: int, config: Path) -> tuple[str, ...]:
    """What to say of it."""
    held = lock(descriptor)
    if held is Lock.HELD_BY_ANOTHER:
        raise EnvironmentNotReadyError(
            f"another tune is writing to {config.parent}", "try again when it has ended"
        )
    if held is Lock.UNKNOWN:
        advice = "make sure that no other tune writes to it now"
        return (f"{config.parent} does not support locks: {advice}",)
    return ()
