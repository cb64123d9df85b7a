"""Replaces several files as one: all of them or none, after any failure and any kill.

docs/architecture.md, Writing back, has the order of the steps.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, StalePlanError, TunerError
from tuner.modelconfig.files import directory_of
from tuner.writeback.backups import prune_backups
from tuner.writeback.files import drop_staged, explained, sha256_or_none, stage_file
from tuner.writeback.journal import Action, Entry, FileChange
from tuner.writeback.repository import FileState, OpenRepository, keep, put, restore
from tuner.writeback.target import WrittenFile, replaced


@dataclass(frozen=True)
class Replacement:
    """The replacement of a file.

    Attributes:
        file: The current file.
        wanted: The new content; ``None``: remove the file.
        like: A file with the wanted permissions, owner and extended attributes.
    """

    file: FileState
    wanted: bytes | None
    like: Path


def commit(
    opened: OpenRepository,
    replacements: Sequence[Replacement],
    action: Action,
    run_id: str,
    *,
    dry_run: bool = False,
) -> tuple[WrittenFile, ...]:
    """Carries out all replacements, or none; with ``dry_run``, none.

    Raises:
        StalePlanError: A program without the lock, such as an editor, changed a file meanwhile.
        EnvironmentNotReadyError: Something failed. All files are as before, or, if restoring them
            failed too, will be when the repository is opened again.
    """
    if dry_run or not replacements:
        return tuple(replaced(r.file.target, r.file.content, r.wanted, None) for r in replacements)
    entry = _entry(replacements, action, run_id)
    backups = [keep(replacement.file) for replacement in replacements]
    noted = False
    try:
        notes = [_stage(replacement) for replacement in replacements]
        opened.journal.append(entry)
        noted = True
        for replacement in replacements:
            put(replacement.file, replacement.wanted)
    except BaseException as error:
        back = _put_all_back(opened, replacements, entry if noted else None)
        if isinstance(error, TunerError) and not back and len(replacements) > 1:
            error.hint += "; `tune rollback` restores files that had been replaced by then"
        raise
    opened.journal.note_end(entry, Action.DONE)
    _prune(opened, replacements)
    return tuple(
        replaced(r.file.target, r.file.content, r.wanted, backup, tuple(said))
        for r, backup, said in zip(replacements, backups, notes, strict=True)
    )


def _entry(replacements: Sequence[Replacement], action: Action, run_id: str) -> Entry:
    changes = []
    for file, wanted in ((r.file, r.wanted) for r in replacements):
        path = file.target.path.relative_to(directory_of(file.target.path).parent)
        changes.append(FileChange(path.as_posix(), file.sha256, sha256_or_none(wanted)))
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Entry(action, at, run_id, tuple(changes))


def _stage(replacement: Replacement) -> list[str]:
    target, wanted = replacement.file.target, replacement.wanted
    if wanted is None:
        return []
    with explained(target.path):
        return stage_file(target.real, wanted, like=replacement.like)


def _put_all_back(
    opened: OpenRepository, replacements: Sequence[Replacement], noted: Entry | None
) -> bool:
    """Restores all files after a failure; False if this fails too."""
    for replacement in replacements:
        drop_staged(replacement.file.target.real)
    if noted is None:
        return True
    try:
        for replacement in replacements:
            if replacement.file.target.read() == replacement.wanted:
                put_there = replace(replacement.file, content=replacement.wanted)
                with contextlib.suppress(StalePlanError):  # changed by hand meanwhile
                    restore(put_there, replacement.file.content)
    except (OSError, TunerError):
        return False
    opened.journal.note_end(noted, Action.UNDONE)
    return True


def _prune(opened: OpenRepository, replacements: Sequence[Replacement]) -> None:
    """Removes old backups; leaves all of them if the journal is damaged."""
    history = defaultdict[str, list[tuple[Action, FileChange]]](list)
    with contextlib.suppress(EnvironmentNotReadyError):
        for entry in (noted.entry for noted in opened.journal.newest_first()):
            for change in entry.files:
                real = os.path.realpath(opened.directory / change.path)
                history[real].append((entry.action, change))
        for target in (replacement.file.target for replacement in replacements):
            prune_backups(target.real, history[str(target.real)])
