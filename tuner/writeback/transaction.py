"""Several files replaced as one: all of them or none, whatever fails and wherever it is killed.

docs/architecture.md, Writing back, has the order of the steps. A process that is killed between two
renames leaves that to the next command that writes (`tuner.writeback.rollback`): it finds all
journals with the write and none with its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import StalePlanError, TunerError
from tuner.modelconfig.files import directory_of
from tuner.writeback.files import (
    drop_staged,
    explained,
    remove_file,
    rename_staged,
    replace_file,
    sha256_of_bytes,
    sha256_or_none,
    stage_file,
)
from tuner.writeback.journal import Action, Entry, Journal, Other, locked_journal
from tuner.writeback.target import Target, WrittenFile, replaced, target_of
from tuner.writing import sync_directory


@dataclass(frozen=True)
class Open:
    """A file that is locked."""

    target: Target
    journal: Journal
    content: bytes | None

    @property
    def sha256(self) -> str | None:
        return sha256_or_none(self.content)


@dataclass(frozen=True)
class Replacement:
    """What is done to a file.

    Attributes:
        wanted: What it is to hold; ``None`` to remove it.
        like: Permissions, owner and extended attributes are this file's.
    """

    file: Open
    wanted: bytes | None
    like: Path


@contextlib.contextmanager
def opened(targets: Iterable[Target]) -> Iterator[list[Open]]:
    """The files, locked against every other tune until the context is left.

    Raises:
        EnvironmentNotReadyError: A directory is not writable, or a lock is held.
    """
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_open(target)) for target in targets]


@contextlib.contextmanager
def _open(target: Target) -> Iterator[Open]:
    if not target.real.parent.exists():  # configs/
        with explained(target.path):
            target.real.parent.mkdir(exist_ok=True)
            sync_directory(directory_of(target.path))
    with locked_journal(target.real) as journal, explained(target.path):
        drop_staged(target.real)  # a killed process may have left it
        yield Open(target, journal, target.read())


@dataclass(frozen=True)
class Part:
    """A locked file of a write that is being undone."""

    file: Open
    old: str | None
    new: str | None

    @property
    def is_old(self) -> bool:
        return self.file.sha256 == self.old

    @property
    def is_new(self) -> bool:
        return self.file.sha256 == self.new

    def old_content(self) -> bytes | None:
        """Raises:
        EnvironmentNotReadyError: The backup is missing or damaged.
        """
        return None if self.old is None else self.file.journal.kept(self.old)


def parts_of(files: Sequence[Open], entry: Entry) -> list[Part]:
    """The files of a write, the first of them that whose journal has the entry."""
    hashes = [entry.hashes, *(other.hashes for other in entry.others)]
    if entry.action is Action.ROLLBACK:
        hashes = [(after, before) for before, after in hashes]
    return [Part(file, *pair) for file, pair in zip(files, hashes, strict=True)]


def missing(target: Target, entry: Entry) -> set[str]:
    """Models of an entry's other files that were removed from the repository since."""
    repository = directory_of(target.path).parent
    return {other.model for other in entry.others if not (repository / other.model).is_dir()}


def others_of(target: Target, entry: Entry, *, through_links: bool) -> list[Target]:
    """The other files of an entry's write, in the repository of this one, in the entry's order.

    Raises:
        EnvironmentNotReadyError: One is not there, or lies outside the repository.
        SpecError: One is not a config.
    """
    directory = directory_of(target.path)
    config = target.path.relative_to(directory)
    return [
        target_of(directory.parent / name / config, name, through_links=through_links)
        for name in (other.model for other in entry.others)
    ]


def commit(
    replacements: Sequence[Replacement], action: Action, run_id: str, *, dry_run: bool = False
) -> tuple[WrittenFile, ...]:
    """Carries all of them out, or none; with ``dry_run`` none.

    Raises:
        StalePlanError: Somebody who takes no lock, such as an editor, changed a file meanwhile.
        EnvironmentNotReadyError: Something failed; all files are as they were, or, where the
            way back failed too, will be by `tuner.writeback.rollback`.
    """
    if dry_run:
        return tuple(replaced(r.file.target, r.file.content, r.wanted, None) for r in replacements)
    entries = _entries(replacements, action, run_id)
    backups = [keep(replacement.file) for replacement in replacements]
    pairs = list(zip(replacements, entries, strict=True))
    noted: list[tuple[Replacement, Entry]] = []
    try:
        notes = [_stage(replacement) for replacement in replacements]
        for replacement, entry in pairs:
            with explained(replacement.file.target.path):
                replacement.file.journal.append(entry)
            noted.append((replacement, entry))
        for replacement in replacements:
            _put(replacement)
    except BaseException as error:
        back = _put_all_back(replacements, noted)
        if isinstance(error, TunerError) and not back and any(e.others for e in entries):
            error.hint += "; `tune rollback` puts back what had been replaced by then"
        raise
    for replacement, entry in pairs:
        replacement.file.journal.note_end(entry, Action.DONE)
    for replacement in replacements:
        replacement.file.journal.prune()
    return tuple(
        replaced(r.file.target, r.file.content, r.wanted, backup, (*r.file.journal.notes, *said))
        for r, backup, said in zip(replacements, backups, notes, strict=True)
    )


def _entries(replacements: Sequence[Replacement], action: Action, run_id: str) -> list[Entry]:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    parts = [
        Other(directory_of(r.file.target.path).name, r.file.sha256, sha256_or_none(r.wanted))
        for r in replacements
    ]
    return [
        Entry(
            action, at, run_id, part.sha256_before, part.sha256_after,
            tuple(other for other in parts if other is not part),
        )
        for part in parts
    ]  # fmt: skip


def keep(file: Open) -> Path | None:
    with explained(file.target.path):
        return None if file.content is None else file.journal.keep(file.content)


def _stage(replacement: Replacement) -> list[str]:
    target, wanted = replacement.file.target, replacement.wanted
    if wanted is None:
        return []
    with explained(target.path):
        return stage_file(target.real, wanted, like=replacement.like)


def _put(replacement: Replacement) -> None:
    target, real = replacement.file.target, replacement.file.target.real
    if target.read() != replacement.file.content:
        raise StalePlanError(
            f"{target.path} changed while it was about to be replaced; nothing was written",
            "look at the file, then try again",
        )
    with explained(target.path):
        if replacement.wanted is None:
            remove_file(real)
        else:
            rename_staged(real)


def _put_all_back(
    replacements: Sequence[Replacement], noted: Sequence[tuple[Replacement, Entry]]
) -> bool:
    """After a failure; False where this fails too."""
    for replacement in replacements:
        drop_staged(replacement.file.target.real)
    try:
        for replacement, _ in noted:
            if replacement.file.target.read() == replacement.wanted:
                restore(replacement.file, replacement.file.content)
    except (OSError, TunerError):
        return False
    for replacement, entry in noted:
        replacement.file.journal.note_end(entry, Action.UNDONE)
    return True


def restore(file: Open, content: bytes | None) -> None:
    """Gives a file its old content back; ``None`` removes it."""
    if content is None:
        remove_file(file.target.real)
    else:
        replace_file(file.target.real, content, like=like_of(file, content))


def like_of(file: Open, content: bytes | None) -> Path:
    """What a restored file is like: the one that is there, else the backup of its content."""
    real = file.target.real
    if real.exists() or content is None:
        return real
    return file.journal.backup(sha256_of_bytes(content))
