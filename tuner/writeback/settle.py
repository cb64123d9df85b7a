"""Repairs what a kill left half written."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, StalePlanError, TunerError
from tuner.modelconfig.files import directory_of, model_names
from tuner.writeback.files import explained, sha256_or_none
from tuner.writeback.journal import Action, Entry, configs_of, left_unended
from tuner.writeback.target import Target, target_of
from tuner.writeback.transaction import Part, keep, missing, opened, others_of, parts_of, restore
from tuner.writeback.written import Written, WrittenFile, replaced, unchanged


def settle_all(repository: Path) -> Iterator[Written]:
    """`settle` for every model of a repository.

    Raises:
        StalePlanError: Of a half-written set, one file was changed since.
        EnvironmentNotReadyError: A half-written set cannot be put right.
    """
    for name in model_names(repository):
        for path in configs_of(repository / name):
            with contextlib.suppress(OSError, RuntimeError):  # a link that leads nowhere
                if left_unended(path.resolve()) and (written := settle(target_of(path, name))):
                    yield written


def half_written(repository: Path) -> dict[tuple[str, ...], EnvironmentNotReadyError]:
    """What to say of each write that a kill cut short, by its models; changes nothing."""
    told = {}
    for path in (p for name in sorted(repository.glob("*")) for p in configs_of(name)):
        with contextlib.suppress(OSError, RuntimeError, TunerError):  # told by who needs to read it
            entry = left_unended(path.resolve())
            is_new = {} if entry is None else _are_new(path, entry)
            models, new = sorted(is_new), sorted(model for model in is_new if is_new[model])
            if entry is not None and 0 < len(new) < len(models):
                undo = ["tune", "rollback", new[0], "--repository", str(repository)]
                told[tuple(models)] = EnvironmentNotReadyError(
                    f"the write of run {entry.run_id} on {entry.at} was cut short: of "
                    f"{', '.join(models)} in {repository}, only {', '.join(new)} with the winner",
                    f"put back what was there before: {shlex.join(undo)}",
                )
    return told


def _are_new(path: Path, entry: Entry) -> dict[str, bool]:
    """Which models of a write have its winner's config; empty where another write followed."""
    target = target_of(path, directory_of(path).name, through_links=True)
    targets = [target, *others_of(target, entry, through_links=True)]
    noted = {t: left_unended(t.real) for t in targets}
    if not all(e and e.is_of_the_write_of(entry) for e in noted.values()):
        return {}
    new = 1 if entry.action is Action.APPLY else 0
    are = {t: sha256_or_none(t.read()) == e.hashes[new] for t, e in noted.items() if e}
    return {directory_of(t.path).name: is_new for t, is_new in are.items()}


def settle(target: Target, *, force: bool = False, through_links: bool = False) -> Written | None:
    """Undoes a write of several files that a kill cut short, and finishes such a rollback.

    Either way the files are then as before the winner was written. It is harmless to repeat this,
    or to kill it.

    Args:
        force: Also where one of them was changed since.
        through_links: Also files outside the repository.

    Returns:
        What was done; ``None`` where there was nothing to do.

    Raises:
        StalePlanError: One of the files was changed since, and ``force`` is not set.
        EnvironmentNotReadyError: A journal or backup is damaged, or a file cannot be written.
    """
    entry = left_unended(target.real)
    if entry is None or missing(target, entry):
        return None
    targets = [target, *others_of(target, entry, through_links=through_links)]
    with opened(targets) as files:
        entries = [found for file in files if (found := file.journal.unended())]
        if len(entries) < len(files) or not all(e.is_of_the_write_of(entry) for e in entries):
            return None  # never begun, or ended, or followed by another
        undo = entry.action is Action.APPLY
        written, is_old = _settle(parts_of(files, entries[0]), entry, force=force)
        if is_old is not None:
            end = Action.UNDONE if undo is is_old else Action.DONE
            for file, own in zip(files, entries, strict=True):
                file.journal.note_end(own, end)
        return written


def _settle(
    parts: Sequence[Part], entry: Entry, *, force: bool
) -> tuple[Written | None, bool | None]:
    """What was done, and whether all files are the old ones now; ``None`` where that is open."""
    if all(part.is_new for part in parts):
        return None, False
    if all(part.is_old for part in parts):
        return None, True
    if not any(part.is_new for part in parts):
        return None, None  # none of them was replaced, some were changed since
    changed = [part.file.target.path for part in parts if not (part.is_old or part.is_new)]
    if changed and not force:
        raise StalePlanError(
            f"the write of run {entry.run_id} on {entry.at} was cut short, and {changed[0]} was "
            "changed since; nothing was restored",
            "look at the file; `tune rollback --force` puts back all files of that write and "
            "keeps a copy",
        )
    note = f"the write of run {entry.run_id}, which was cut short, is undone"
    return Written(_put_back(parts), entry.run_id, (note,)), True


def _put_back(parts: Sequence[Part]) -> tuple[WrittenFile, ...]:
    """Without an entry of its own: that of the write remains until all are back."""
    old = [part.old_content() for part in parts]
    backups = [None if part.is_old else keep(part.file) for part in parts]
    files = []
    for part, content, backup in zip(parts, old, backups, strict=True):
        target, found = part.file.target, part.file.sha256
        if part.is_old:
            files.append(unchanged(target, found))
            continue
        with explained(target.path):
            restore(part.file, content)
        files.append(replaced(target, (found, part.old), backup))
    return tuple(files)
