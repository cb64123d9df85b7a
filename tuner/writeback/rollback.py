"""Undoes a write on request."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, SpecError, StalePlanError, TunerError
from tuner.modelconfig.files import directory_of, model_directory, read_config
from tuner.modelconfig.served import read_served
from tuner.spec.mistakes import listed
from tuner.spec.paths import CONFIG_NAME
from tuner.writeback.backups import like_of
from tuner.writeback.files import sha256_or_none
from tuner.writeback.journal import Action, Entry, FileChange, Noted, journal_of
from tuner.writeback.repository import OpenRepository, Part, missing, open_repository
from tuner.writeback.target import Written, is_config_of, target_of, unchanged
from tuner.writeback.transaction import Replacement, commit


def rollback(
    repository: Path,
    model: str,
    *,
    run_id: str | None = None,
    force: bool = False,
    through_links: bool = False,
    dry_run: bool = False,
) -> Written:
    """Restores, byte for byte, the config that the last `apply` replaced, and all it wrote with it.

    A file that did not exist before is removed. A repeated rollback changes nothing (``changed`` is
    False). The replaced content is kept as a backup too. Of several files, all or none are
    restored.

    Args:
        model: Name of a model whose config was written, or of an ensemble of such models: then
            the last write to one of its steps is undone, if its own config was never written.
        run_id: The run whose write is undone; None: the last write.
        force: Restore even if a file was changed after the write.
        through_links: Also write a config that is a link to a file outside the repository.
        dry_run: Change nothing, and return what would be done.

    Raises:
        StalePlanError: A file was changed after the write, and ``force`` is not set; or the last
            write is not that of ``run_id``.
        EnvironmentNotReadyError: A journal or a backup is missing or damaged, or a directory
            cannot be written.
        SpecError: There is no such model, or nothing was ever written to it.
    """
    config = model_directory(repository, model) / CONFIG_NAME
    if not journal_of(repository).exists():
        target_of(config, model, through_links=through_links)
        raise _never_written(config)
    with open_repository(
        repository, through_links=through_links, force=force, dry_run=dry_run
    ) as opened:
        history = partial(_history, opened, config, {model})
        if next(history(), None) is None:
            history = partial(_history, opened, config, _steps(repository, model))
        newest, done = next(history(), None), opened.repaired
        if newest is None:
            raise _never_written(config)
        if done is not None and newest[0] == next(opened.journal.newest_first()):
            return done
        entry, change = _last_made(repository, history(), run_id)
        if run_id not in (None, entry.run_id):
            raise StalePlanError(
                f"the last write to {repository / change.path} is that of {entry.run_id}; "
                "nothing was restored",
                f"undo that one first: tune rollback {entry.run_id}",
            )
        back = _take_back(opened, entry, change, force=force, dry_run=dry_run)
        notes = (*opened.journal.notes, *(done.all_notes if done is not None else ()))
        return replace(back, notes=notes)


def _history(
    opened: OpenRepository, config: Path, models: Collection[str]
) -> Iterator[tuple[Noted, FileChange]]:
    """Writes and rollbacks of these models' configs, or of ``config`` by any link; newest first."""
    real = os.path.realpath(config)
    for noted in opened.journal.newest_first():
        for change in noted.entry.files:
            path = opened.directory / change.path
            if change.model in models or os.path.realpath(path) == real:
                yield noted, change


def _steps(repository: Path, model: str) -> set[str]:
    """The models of an ensemble that exist in the repository."""
    with contextlib.suppress(TunerError):
        return {step.name for step in read_served(repository, [model]).models.values()}
    return set()


def _last_made(
    repository: Path, history: Iterable[tuple[Noted, FileChange]], run_id: str | None
) -> tuple[Entry, FileChange]:
    """The last write or rollback of a config, or that of a run if it was the last of some config.

    Skips writes that were recorded but, after a crash or a failure, never carried out or were
    undone; if there is nothing else, the newest of these.

    Raises:
        EnvironmentNotReadyError: A required entry is damaged.
    """
    made: dict[str, tuple[Entry, FileChange]] = {}
    never_made = []
    for noted, change in history:
        entry, end, path = noted.entry, noted.end, change.path
        if end is None and entry.action is Action.APPLY:
            sha256 = sha256_or_none(read_config(repository / path))
            end = Action.UNDONE if sha256 == change.sha256_before else None
        if end is Action.UNDONE:
            never_made.append((entry, change))
        elif path not in made:
            made[path] = entry, change
            if run_id in (None, entry.run_id):
                break
    of_run = (last for last in made.values() if last[0].run_id == run_id)
    return next(of_run, None) or next(iter([*made.values(), *never_made]))


def _take_back(
    opened: OpenRepository, entry: Entry, applied: FileChange, *, force: bool, dry_run: bool
) -> Written:
    gone = missing(opened.directory, entry) - {applied.model}
    there = (change for change in entry.files if change.model not in gone)
    parts = opened.parts(entry, sorted(there, key=lambda change: change is not applied))
    is_back = entry.action is Action.ROLLBACK and parts[0].is_old
    if gone and not force and not is_back:
        raise EnvironmentNotReadyError(
            f"{parts[0].file.target.path} was written together with the config of "
            f"{listed(sorted(gone))}, which no longer exists; nothing was restored",
            "`tune rollback --force` restores the existing ones",
        )
    if is_back or (parts[0].is_old and not any(part.is_new for part in parts)):
        back = (unchanged(part.file.target, part.old) for part in parts if part.is_old)
        return Written(tuple(back), entry.run_id)
    return _take_all_back(opened, parts, entry, force=force, dry_run=dry_run)


def _take_all_back(
    opened: OpenRepository, parts: Sequence[Part], entry: Entry, *, force: bool, dry_run: bool
) -> Written:
    for part in parts:
        if not (part.is_old or part.is_new or force):
            raise StalePlanError(
                f"{part.file.target.path} changed after it was written on {entry.at}; "
                "nothing was restored",
                "look at the file; `tune rollback --force` replaces it and keeps a copy",
            )
    back = []
    for part in parts:
        if not part.is_old:
            content = part.old_content()
            back.append(Replacement(part.file, content, like_of(part.file.target.real, content)))
    rolled = commit(opened, back, Action.ROLLBACK, entry.run_id, dry_run=dry_run)
    done = {file.real: file for file in rolled}
    targets = [(part.file.target, part.old) for part in parts]
    files = tuple(done.get(target.real) or unchanged(target, old) for target, old in targets)
    return Written(files, entry.run_id)


def is_back(path: Path, sha256_before: str | None, sha256_after: str | None) -> bool:
    """Whether a config that a run wrote is as before the write.

    Also False if that cannot be determined, for instance on another machine.
    """
    directory = directory_of(path)
    if sha256_before == sha256_after or not is_config_of(path, directory.name):
        return False
    try:
        return directory.is_dir() and sha256_or_none(read_config(path)) == sha256_before
    except (OSError, ValueError, TunerError):
        return False


def _never_written(path: Path) -> SpecError:
    return SpecError(
        f"nothing to restore: tune never wrote {path}",
        "check the repository and the model's name",
    )
