"""Takes a write back: on request, or because a kill left it half done."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, SpecError, StalePlanError, TunerError
from tuner.modelconfig.files import directory_of, model_directory, model_names, read_config
from tuner.modelconfig.served import read_served
from tuner.spec.paths import CONFIG_NAME
from tuner.writeback.files import explained, sha256_or_none
from tuner.writeback.journal import Action, Entry, configs_of, journal_of, left_unended, newest
from tuner.writeback.target import (
    Target,
    Written,
    WrittenFile,
    is_config_of,
    replaced,
    target_of,
    unchanged,
)
from tuner.writeback.transaction import (
    Part,
    Replacement,
    commit,
    keep,
    like_of,
    missing,
    opened,
    others_of,
    parts_of,
    restore,
)


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


def settle(
    target: Target, *, force: bool = False, through_links: bool = False, dry_run: bool = False
) -> Written | None:
    """Undoes a write of several files that a kill cut short, and finishes such a rollback.

    Either way the files are then as before the winner was written. It is harmless to repeat this,
    or to kill it.

    Args:
        force: Also where one of them was changed since.
        dry_run: Change nothing, and tell what would be done.

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
        parts = parts_of(files, entries[0])
        written, is_old = _settle(parts, entry, force=force, dry_run=dry_run)
        if is_old is not None and not dry_run:
            end = Action.UNDONE if undo is is_old else Action.DONE
            for file, own in zip(files, entries, strict=True):
                file.journal.note_end(own, end)
        return written


def _settle(
    parts: Sequence[Part], entry: Entry, *, force: bool, dry_run: bool
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
    return Written(_put_back(parts, dry_run=dry_run), entry.run_id, (note,)), True


def _put_back(parts: Sequence[Part], *, dry_run: bool) -> tuple[WrittenFile, ...]:
    """Without an entry of its own: that of the write remains until all are back."""
    old = [part.old_content() for part in parts]
    backups = [None if part.is_old or dry_run else keep(part.file) for part in parts]
    files = []
    for part, content, backup in zip(parts, old, backups, strict=True):
        target = part.file.target
        if part.is_old:
            files.append(unchanged(target, part.old))
            continue
        if not dry_run:
            with explained(target.path):
                restore(part.file, content)
        files.append(replaced(target, part.file.content, content, backup))
    return tuple(files)


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

    Removes a file where there was none. Doing it twice is harmless: the second time nothing
    changes (``changed`` is False). What is replaced is kept as a backup too. Of several files
    all are restored, or none.

    Args:
        model: The name of a model whose config was written, or of an ensemble of such models: then
            the last write to one of its steps is meant, if its own config was never written.
        run_id: The run whose write is meant; None: whichever was the last.
        force: Restore even if a file was changed after the write.
        through_links: Also where a config is a link to a file outside the repository.
        dry_run: Change nothing, and tell what would be done.

    Raises:
        StalePlanError: A file was changed after the write, and ``force`` is not set; or the last
            write is not that of ``run_id``.
        EnvironmentNotReadyError: A journal or a backup is missing or damaged, or a directory
            cannot be written.
        SpecError: There is no such model, or nothing was ever written to it.
    """
    directory = model_directory(repository, model)
    path = _last_written(directory, run_id=run_id) or directory / CONFIG_NAME
    target = target_of(path, model, through_links=through_links)
    with explained(path):
        written = journal_of(target.real).is_file()
    if not written:
        target = _last_written_step(repository, model, through_links=through_links)
    if run_id is not None:
        _refuse_another(target, run_id)
    how = {"force": force, "through_links": through_links, "dry_run": dry_run}
    return settle(target, **how) or _take_back(target, **how)


def _refuse_another(target: Target, run_id: str) -> None:
    entry = newest(target.real)
    if entry is not None and entry.run_id != run_id:
        raise StalePlanError(
            f"the last write to {target.path} is that of {entry.run_id}; nothing was restored",
            f"take that back first: tune rollback {entry.run_id}",
        )


def _last_written_step(repository: Path, model: str, *, through_links: bool) -> Target:
    path = None
    with contextlib.suppress(TunerError):  # a step that is not there
        served = read_served(repository, [model]).models.values()
        path = _last_written(*(step.files.directory for step in served))
    if path is None:
        raise _never_written(repository / model / CONFIG_NAME)
    return target_of(path, directory_of(path).name, through_links=through_links)


def _last_written(*models: Path, run_id: str | None = None) -> Path | None:
    """The config of these models that tune wrote last, for this run if there is one."""
    noted = {}
    for path in (path for model in models for path in configs_of(model)):
        with contextlib.suppress(OSError, RuntimeError):  # a link that leads nowhere
            if (entry := newest(path.resolve())) is not None:
                noted[entry.run_id == run_id, entry.at] = path
    return noted[max(noted)] if noted else None


def _take_back(target: Target, *, force: bool, through_links: bool, dry_run: bool) -> Written:
    with opened([target]) as (file,):
        entry = file.journal.last(file.sha256)
        if entry is None:
            raise _never_written(target.path)
        is_back = entry.action is Action.ROLLBACK and file.sha256 == entry.sha256_after
        if gone := missing(target, entry):
            if not force and not is_back:
                raise EnvironmentNotReadyError(
                    f"{target.path} was written together with the config of "
                    f"{', '.join(sorted(gone))}, which is not there any more; nothing was restored",
                    "`tune rollback --force` restores those that are there",
                )
            entry = replace(entry, others=tuple(o for o in entry.others if o.model not in gone))
        with opened(others_of(target, entry, through_links=through_links)) as others:
            parts = parts_of([file, *others], entry)
            if is_back or (parts[0].is_old and not any(part.is_new for part in parts)):
                back = (unchanged(part.file.target, part.old) for part in parts if part.is_old)
                return Written(tuple(back), entry.run_id)
            return _take_all_back(parts, entry, force=force, dry_run=dry_run)


def _take_all_back(parts: Sequence[Part], entry: Entry, *, force: bool, dry_run: bool) -> Written:
    for part in parts:
        if not (part.is_old or part.is_new or force):
            raise StalePlanError(
                f"{part.file.target.path} changed after it was written on {entry.at}; "
                "nothing was restored",
                "look at the file; `tune rollback --force` replaces it and keeps a copy",
            )
    back = [
        Replacement(part.file, content := part.old_content(), like_of(part.file, content))
        for part in parts
        if not part.is_old
    ]
    rolled = commit(back, Action.ROLLBACK, entry.run_id, dry_run=dry_run)
    done = {file.real: file for file in rolled}
    targets = [(part.file.target, part.old) for part in parts]
    files = tuple(done.get(target.real) or unchanged(target, old) for target, old in targets)
    return Written(files, entry.run_id)


def is_back(path: Path, sha256_before: str | None, sha256_after: str | None) -> bool:
    """Whether a config that a run wrote is again what it was before.

    Also False where it cannot be known, for instance on another machine.
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
        f"nothing to take back: tune never wrote {path}",
        "check the repository and the model's name",
    )
