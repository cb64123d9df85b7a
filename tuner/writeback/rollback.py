"""Takes the last write back."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, StalePlanError
from tuner.writeback.apply import Written
from tuner.writeback.files import (
    explained,
    read_bytes,
    remove_file,
    replace_file,
    sha256_or_none,
)
from tuner.writeback.journal import JOURNAL_NAME, Entry, locked_journal, utc_now


def rollback(repository: Path, model: str, *, force: bool = False) -> Written:
    """Restores, byte for byte, the config that the last `apply` replaced.

    Removes the file when there was none. Doing it twice is harmless: the second time nothing
    changes (``changed`` is False). What is replaced is kept as a backup too.

    Args:
        repository: The model repository.
        model: The model's name.
        force: Restore even if the file was changed after the write.

    Raises:
        StalePlanError: The file was changed after the write, and ``force`` is not set.
        EnvironmentNotReadyError: Nothing was ever written here, the backup is missing or
            damaged, or the directory cannot be written.
    """
    path = repository / model / "config.pbtxt"
    if not path.with_name(JOURNAL_NAME).exists():
        raise _never_written(path)
    with locked_journal(path.parent) as journal, explained(path):
        entry = journal.last()
        if entry is None:
            raise _never_written(path)
        content = read_bytes(path)
        found = sha256_or_none(content)
        wanted = entry.sha256_before if entry.action == "apply" else entry.sha256_after
        if found == wanted:
            return Written(path, found, found, None, entry.run_id, changed=False)
        if found not in (entry.sha256_before, entry.sha256_after) and not force:
            raise StalePlanError(
                f"{path} changed after it was written on {entry.at}; nothing was restored",
                "look at the file; `tune rollback --force` replaces it and keeps a copy",
            )
        restored = None if wanted is None else journal.kept(wanted)
        backup = None if content is None else journal.keep(content)
        journal.append(Entry("rollback", utc_now(), entry.run_id, found, wanted))
        if restored is None:
            remove_file(path)
        else:
            replace_file(path, restored)
    return Written(path, found, wanted, backup, entry.run_id)


def is_back(path: Path, sha256_before: str | None, sha256_after: str | None) -> bool:
    """Whether a config that a run wrote is again what it was before.

    False also where nothing can be said, for instance on another machine.
    """
    if sha256_before == sha256_after or not path.parent.is_dir():
        return False
    try:
        return sha256_or_none(read_bytes(path)) == sha256_before
    except OSError:
        return False


def _never_written(path: Path) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"nothing to take back: tune never wrote {path}",
        "check the repository and the model's name",
    )
