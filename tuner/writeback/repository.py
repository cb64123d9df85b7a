"""A repository open for writing: locked, and without half-written files.

Only this module repairs what a kill left: a process that dies between two renames leaves a journal
whose last write has no end. Whoever opens the repository next undoes that write, or completes that
rollback; in both cases, all files are then as they were before the winner was written.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, StalePlanError, TunerError
from tuner.modelconfig.files import ModelFiles, directory_of
from tuner.spec.mistakes import listed
from tuner.writeback.backups import keep_backup, like_of, read_backup
from tuner.writeback.files import (
    drop_staged,
    explained,
    refuse_unwritable,
    remove_file,
    rename_staged,
    sha256_or_none,
    stage_file,
)
from tuner.writeback.journal import (
    Action,
    Entry,
    FileChange,
    Journal,
    Noted,
    locked_journal,
    look,
    refuse_unwritable_journal,
)
from tuner.writeback.target import Target, Written, WrittenFile, replaced, target_of, unchanged
from tuner.writing import sync_directory


@dataclass(frozen=True)
class FileState:
    """A config file as it is now."""

    target: Target
    content: bytes | None

    @property
    def sha256(self) -> str | None:
        return sha256_or_none(self.content)


@dataclass(frozen=True)
class Part:
    """A file of an earlier write: its current state, and its hashes without and with the winner."""

    file: FileState
    old: str | None
    new: str | None

    @property
    def is_old(self) -> bool:
        return self.file.sha256 == self.old

    @property
    def is_new(self) -> bool:
        return self.file.sha256 == self.new

    def old_content(self) -> bytes | None:
        """The content before the winner.

        Raises:
            EnvironmentNotReadyError: The backup is missing or damaged.
        """
        return None if self.old is None else read_backup(self.file.target.real, self.old)


class WriteState(Enum):
    """The state of the files of a write."""

    OLD = "all as before the winner"
    NEW = "all with the winner"
    HALF = "some with the winner"
    CHANGED = "none with the winner, some changed since"


def state_of(parts: Sequence[Part]) -> WriteState:
    if all(part.is_new for part in parts):
        return WriteState.NEW
    if all(part.is_old for part in parts):
        return WriteState.OLD
    return WriteState.HALF if any(part.is_new for part in parts) else WriteState.CHANGED


@dataclass(frozen=True)
class OpenRepository:
    """A repository that no other tune writes to; only `open_repository` makes one.

    Attributes:
        journal: Its locked journal.
        through_links: Whether to write a config that is a link to a file outside the repository.
        repaired: The incomplete write that was undone on opening; None without one.
    """

    directory: Path
    journal: Journal
    through_links: bool
    repaired: Written | None = None

    def find(self, target: Target) -> FileState:
        """The current file; only programs without the lock, such as editors, can change it."""
        if not target.real.parent.exists():  # directory configs/
            with explained(target.path):
                target.real.parent.mkdir(exist_ok=True)
                sync_directory(directory_of(target.path))
        with explained(target.path):
            drop_staged(target.real)  # a killed process may have left one
            return FileState(target, target.read())

    def parts(self, entry: Entry, changes: Sequence[FileChange]) -> list[Part]:
        """The state of these files of an entry.

        Raises:
            EnvironmentNotReadyError: A file does not exist, or is outside the repository.
            SpecError: A file is not a config.
        """
        states = [
            self.find(change_target(self.directory, change, through_links=self.through_links))
            for change in changes
        ]
        return [_part(f, entry, change) for f, change in zip(states, changes, strict=True)]


def change_target(repository: Path, change: FileChange, *, through_links: bool) -> Target:
    return target_of(repository / change.path, change.model, through_links=through_links)


def _part(file: FileState, entry: Entry, change: FileChange) -> Part:
    old, new = change.sha256_before, change.sha256_after
    return Part(file, old, new) if entry.action is Action.APPLY else Part(file, new, old)


def missing(repository: Path, entry: Entry) -> set[str]:
    """Models of an entry that have been removed from the repository since."""
    return {c.model for c in entry.files if not (repository / c.model).is_dir()}


@contextlib.contextmanager
def open_repository(
    directory: Path,
    *,
    through_links: bool = False,
    force: bool = False,
    dry_run: bool = False,
    unrecorded: str = "",
) -> Iterator[OpenRepository]:
    """Locks a repository against every other tune, and undoes a write that a kill interrupted.

    Repeating this is harmless, and so is killing it.

    Args:
        through_links: Also write a config that is a link to a file outside the repository.
        force: Undo the write even if one of its files was changed since.
        dry_run: Change nothing, and return what would be done.
        unrecorded: Id of a run without a record of its write. If the last write is that run's, it
            also counts as interrupted.

    Raises:
        StalePlanError: One of the files was changed since, and ``force`` is not set.
        EnvironmentNotReadyError: Another tune writes to it, a journal or backup is damaged, or a
            file cannot be written.
    """
    with locked_journal(directory) as journal:
        opened = OpenRepository(directory, journal, through_links)
        entry = _in_doubt(journal.newest_first(), unrecorded)
        if entry is not None and not missing(directory, entry):
            recorded = entry.run_id != unrecorded
            repaired = _repair(opened, entry, recorded=recorded, force=force, dry_run=dry_run)
            opened = replace(opened, repaired=repaired)
        yield opened


def repair(directory: Path, *, through_links: bool = False, unrecorded: str = "") -> Written | None:
    """Opens a repository that may have half-written files; returns what was undone.

    Arguments and errors are those of `open_repository`.
    """
    if _in_doubt(look(directory), unrecorded) is None:
        return None
    with open_repository(directory, through_links=through_links, unrecorded=unrecorded) as opened:
        return opened.repaired


def refuse_unwritable_files(repository: Path, targets: Iterable[Target]) -> None:
    """Checks that a write of these configs could start; changes nothing.

    Raises:
        EnvironmentNotReadyError: The repository's journal or a config's directory is not writable.
    """
    refuse_unwritable_journal(repository)
    for target in targets:
        with explained(target.path):
            there = target.real.parent  # configs/ may not exist yet
            refuse_unwritable(there if there.exists() else there.parent)


def unwritable(repository: Path, models: Iterable[ModelFiles]) -> EnvironmentNotReadyError | None:
    """The error if no winner for these models could be written; changes nothing.

    `tuner.writeback.target.write_notes` reports a config behind a link.
    """
    targets = []
    for model in models:
        with contextlib.suppress(TunerError):
            targets.append(target_of(model.directory / model.write_to, model.model))
    try:
        refuse_unwritable_files(repository, targets)
    except EnvironmentNotReadyError as error:
        text = f"no winner could be written: {error.message}"
        return EnvironmentNotReadyError(text, f"{error.hint}; or run it with --no-write")
    return None


def half_written(directory: Path, model: str | None = None) -> EnvironmentNotReadyError | None:
    """The error about a write that a kill interrupted (of ``model`` if given); changes nothing."""
    with contextlib.suppress(OSError, RuntimeError, TunerError):  # whoever reads them reports them
        entry = _in_doubt(look(directory))
        if entry is None or missing(directory, entry):
            return None
        targets = [change_target(directory, c, through_links=True) for c in entry.files]
        parts = [
            _part(FileState(target, target.read()), entry, change)
            for target, change in zip(targets, entry.files, strict=True)
        ]
        models = sorted(change.model for change in entry.files)
        if state_of(parts) is not WriteState.HALF or model not in (None, *models):
            return None
        new = sorted(c.model for c, part in zip(entry.files, parts, strict=True) if part.is_new)
        undo = ["tune", "rollback", new[0], "--repository", str(directory)]
        return EnvironmentNotReadyError(
            f"the write of run {entry.run_id} on {entry.at} was interrupted: of "
            f"{listed(models)} in {directory}, only {listed(new)} with the winner",
            f"restore the files from before the write: {shlex.join(undo)}",
        )
    return None


def _in_doubt(newest_first: Iterable[Noted], unrecorded: str = "") -> Entry | None:
    """The last write if it has no end or is unrecorded; readers report a damaged one."""
    with contextlib.suppress(EnvironmentNotReadyError):
        for noted in newest_first:
            entry, end = noted.entry, noted.end
            of_run = entry.action is Action.APPLY and entry.run_id == unrecorded
            if end is None or (of_run and end is Action.DONE):
                return entry
            if end is Action.DONE or not unrecorded:
                return None
    return None


def _repair(
    opened: OpenRepository, entry: Entry, *, recorded: bool, force: bool, dry_run: bool
) -> Written | None:
    parts = replace(opened, through_links=True).parts(entry, entry.files)
    state = state_of(parts)
    there = state in (WriteState.NEW, WriteState.HALF)
    if there and entry.action is Action.APPLY and not recorded:
        entry, state = entry.taken_back(), WriteState.HALF
        opened.journal.append(entry)
    written = None
    if state is WriteState.HALF:
        written = _put_back(opened, entry, parts, force=force, dry_run=dry_run)
        state = WriteState.OLD
    # If files were changed by hand, it stays unknown whether they ever were the winner's.
    if state is not WriteState.CHANGED and not dry_run:
        made = (state is WriteState.NEW) is (entry.action is Action.APPLY)
        opened.journal.note_end(entry, Action.DONE if made else Action.UNDONE)
    return written


def _put_back(
    opened: OpenRepository, entry: Entry, parts: Sequence[Part], *, force: bool, dry_run: bool
) -> Written:
    """Restores files; adds no entry, as the write's entry has no end until all are restored."""
    changed = [part.file.target.path for part in parts if not (part.is_old or part.is_new)]
    if changed and not force:
        raise StalePlanError(
            f"the write of run {entry.run_id} on {entry.at} was interrupted, and {changed[0]} was "
            "changed since; nothing was restored",
            "look at the file; `tune rollback --force` restores all files of that write and "
            "keeps a copy",
        )
    for change in entry.files:  # refuses files outside the repository
        change_target(opened.directory, change, through_links=opened.through_links)
    old = [part.old_content() for part in parts]
    backups = [None if part.is_old or dry_run else keep(part.file) for part in parts]
    files = [
        _restored(part, content, backup, dry_run=dry_run)
        for part, content, backup in zip(parts, old, backups, strict=True)
    ]
    note = f"the interrupted write of run {entry.run_id} is undone"
    return Written(tuple(files), entry.run_id, (note,))


def _restored(
    part: Part, content: bytes | None, backup: Path | None, *, dry_run: bool
) -> WrittenFile:
    target = part.file.target
    if part.is_old:
        return unchanged(target, part.old)
    if not dry_run:
        restore(part.file, content)
    return replaced(target, part.file.content, content, backup)


def keep(file: FileState) -> Path | None:
    """Stores a backup of the file, if there is one."""
    with explained(file.target.path):
        return None if file.content is None else keep_backup(file.target.real, file.content)


def put(file: FileState, wanted: bytes | None) -> None:
    """Replaces a config with its staged file; removes the config for ``None``.

    Raises:
        StalePlanError: A program without the lock, such as an editor, changed it meanwhile.
    """
    target = file.target
    if target.read() != file.content:
        raise StalePlanError(
            f"{target.path} changed just before its replacement; it was left as it is",
            "look at the file, then try again",
        )
    with explained(target.path):
        if wanted is None:
            remove_file(target.real)
        else:
            rename_staged(target.real)


def restore(file: FileState, content: bytes | None) -> None:
    """Restores a config's old content; ``None`` removes the config. Errors as of `put`."""
    real = file.target.real
    try:
        if content is not None:
            with explained(file.target.path):
                stage_file(real, content, like=like_of(real, content))
        put(file, content)
    except BaseException:
        drop_staged(real)
        raise
