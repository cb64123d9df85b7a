"""Takes the last write back."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, StalePlanError, TunerError
from tuner.modelconfig.files import CONFIG_NAME, model_directory, read_config
from tuner.writeback.apply import Written, written_of
from tuner.writeback.files import explained, remove_file, replace_file, sha256_or_none
from tuner.writeback.journal import (
    Action,
    Entry,
    Journal,
    journal_of,
    locked_journal,
    utc_now,
)
from tuner.writeback.target import Target, target_of


def rollback(
    repository: Path, model: str, *, force: bool = False, through_links: bool = False
) -> Written:
    """Restores, byte for byte, the config that the last `apply` replaced.

    Removes the file when there was none. Doing it twice is harmless: the second time nothing
    changes (``changed`` is False). What is replaced is kept as a backup too.

    Args:
        repository: The model repository.
        model: The model's name.
        force: Restore even if the file was changed after the write.
        through_links: Also where the config is a link to a file outside the repository.

    Raises:
        StalePlanError: The file was changed after the write, and ``force`` is not set.
        EnvironmentNotReadyError: Nothing was ever written here, the journal or the backup is
            missing or damaged, or the directory cannot be written.
        SpecError: There is no such model.
    """
    path = model_directory(repository, model) / CONFIG_NAME
    target = target_of(path, model, through_links=through_links)
    with explained(path):
        if not journal_of(target.real).is_file():
            raise _never_written(path)
    with locked_journal(target.real) as journal, explained(path):
        return _take_back(target, journal, force=force)


def _take_back(target: Target, journal: Journal, *, force: bool) -> Written:
    content = target.read()
    found = sha256_or_none(content)
    entry = journal.last(found)
    if entry is None:
        raise _never_written(target.path)
    wanted = entry.sha256_before if entry.action is Action.APPLY else entry.sha256_after
    back = Entry(Action.ROLLBACK, utc_now(), entry.run_id, found, wanted)
    if found == wanted:
        return written_of(target, back, None, changed=False)
    if found not in (entry.sha256_before, entry.sha256_after) and not force:
        raise StalePlanError(
            f"{target.path} changed after it was written on {entry.at}; nothing was restored",
            "look at the file; `tune rollback --force` replaces it and keeps a copy",
        )
    restored = None if wanted is None else journal.kept(wanted)
    backup = None if content is None else journal.keep(content)
    journal.append(back)
    if restored is None or wanted is None:
        remove_file(target.real)
        notes = []
    else:
        like = journal.backup(wanted) if content is None else target.real
        notes = replace_file(target.real, restored, like=like)
    journal.prune()
    return written_of(target, back, backup, notes=(*journal.notes, *notes))


def is_back(path: Path, sha256_before: str | None, sha256_after: str | None) -> bool:
    """Whether a config that a run wrote is again what it was before.

    False also where nothing can be said, for instance on another machine.
    """
    if sha256_before == sha256_after or path.name != CONFIG_NAME:
        return False
    try:
        return path.parent.is_dir() and sha256_or_none(read_config(path)) == sha256_before
    except (OSError, ValueError, TunerError):
        return False


def _never_written(path: Path) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"nothing to take back: tune never wrote {path}",
        "check the repository and the model's name",
    )
