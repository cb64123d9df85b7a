"""Notices at once that another program edits the configs that a run or a check has read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tuner.errors import TunerError
from tuner.modelconfig.files import read_config
from tuner.prepare.job import Job

#: Inode, size and times of a file; None without a file.
_Status = tuple[int, ...] | None


class ConfigWatch:
    """Reports each edit of a config by a note.

    Args:
        job: The job with the configs as they were read.
        what: The command, such as `run`.
        end: What the edit of a searched config means for the end of the command.
        note: Receives a sentence for each edit.
    """

    def __init__(self, job: Job, what: str, end: str, note: Callable[[str], None]) -> None:
        self._what, self._end, self._note = what, end, note
        self._read = _configs_of(job)
        self._searched = {model.directory for model in job.searched_files}
        self._seen = dict[Path, _Status]()
        self._now = dict(self._read)

    def look(self) -> None:
        """Reports configs that changed since the last look; reads only files with a new status."""
        for path, read in self._read.items():
            status = _status_of(path)
            if path in self._seen and self._seen[path] == status:
                continue
            self._seen[path] = status
            now, before = _sha256_of(path), self._now[path]
            self._now[path] = now
            if now == read and before != read:
                self._note(f"{path} is again as the {self._what} read it")
            elif now != before:
                change = "removed" if now is None else "created" if before is None else "edited"
                self._report(path, change)

    def _report(self, path: Path, change: str) -> None:
        text = f"{path} was {change} meanwhile: the {self._what} goes on with what it read"
        searched = any(path.is_relative_to(directory) for directory in self._searched)
        self._note(f"{text}; {self._end}" if searched else text)


def _configs_of(job: Job) -> Mapping[Path, str | None]:
    """The hash of each config that was read, and None for a file to write that is not there."""
    configs = dict[Path, str | None]()
    for model in job.served.models.values():
        configs[model.files.directory / model.files.write_to] = None
        configs[model.files.path] = model.files.sha256
    return configs


def _status_of(path: Path) -> _Status:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return None


def _sha256_of(path: Path) -> str | None:
    """Hash of a config; None without a file, "unreadable" for what is no config."""
    try:
        content = read_config(path)
    except TunerError:
        return "unreadable"
    return None if content is None else hashlib.sha256(content).hexdigest()
