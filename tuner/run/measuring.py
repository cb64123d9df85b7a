"""Who measures on this machine: one file each, locked for as long as its process lives.

The files are in the machine's temporary directory, so the permissions of a repository make no
difference. The lock goes with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.facts import Facts
from tuner.locking import Lock, lock
from tuner.run.reading import UnreadableFileError, read_as, read_json

_DIRECTORY = "tune-measuring"
#: A file of ours is a tenth of it.
_MAX_BYTES = 10_000


@dataclass(frozen=True)
class Measuring(Facts):
    """A `tune` that measures.

    Attributes:
        what: Its command: run, check, worker, doctor.
        run: Id of the run or check.
        models: Directories of the models it searches, links resolved.
        gpus: Its server may see: ``all``, ``none``, or numbers.
        started_at: ISO 8601, UTC.
    """

    pid: int
    what: str
    run: str
    models: tuple[str, ...]
    gpus: str | tuple[int, ...]
    started_at: str

    @property
    def text(self) -> str:
        """``tune run 20250301-... (pid 7, since 2025-03-01 10:00 UTC)``."""
        since = self.started_at[:16].replace("T", " ")
        return f"tune {self.what} {self.run} (pid {self.pid}, since {since} UTC)"

    def disturbs(self, other: Measuring) -> bool:
        """They always share the CPU; that disturbs little where each has its own GPUs."""
        apart = isinstance(self.gpus, tuple) and isinstance(other.gpus, tuple)
        return not apart or bool(set(self.gpus) & set(other.gpus))


@contextlib.contextmanager
def registered(mine: Measuring) -> Iterator[Path | None]:
    """Announces a measurement to other processes while the context is open.

    Returns:
        Its file; None where the machine has no place for it: measuring goes on without.
    """
    path = None
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path = _entered(mine, stack)
        yield path


def others(own: Path | None) -> list[Measuring]:
    """All that measure on this machine now, except the one whose file is ``own``."""
    found: list[Measuring] = []
    for path in sorted(registry().glob("*.json")):
        if path != own:
            with contextlib.suppress(OSError, UnreadableFileError):
                found += _alive(path)
    return found


def registry() -> Path:
    return Path(tempfile.gettempdir()) / _DIRECTORY


def _entered(mine: Measuring, stack: contextlib.ExitStack) -> Path:
    """Named at last, so that nobody sees it before it is locked."""
    directory = registry()
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
        directory.chmod(0o1777)  # anybody's, as the temporary directory is
    if not stat.S_ISDIR(directory.lstat().st_mode):
        raise NotADirectoryError(directory)
    path = directory / f"{mine.pid}-{secrets.token_hex(4)}.json"
    hidden = path.with_suffix(".new")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(hidden, flags, 0o644)
    stack.callback(os.close, descriptor)
    stack.callback(path.unlink, missing_ok=True)
    lock(descriptor)
    os.write(descriptor, json.dumps(mine.to_json()).encode())
    hidden.replace(path)
    return path


def _alive(path: Path) -> Sequence[Measuring]:
    """What a file says of a process of its owner; a file that nobody holds is removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return []
        if lock(descriptor, shared=True) is not Lock.HELD_BY_ANOTHER:
            path.unlink()
            return []
    finally:
        os.close(descriptor)
    claim = read_as(str(path), read_json(path, dict) or {}, Measuring.from_json)
    return [claim] if Path(f"/proc/{claim.pid}").stat().st_uid == status.st_uid else []
