"""What was written to a model's config and what it replaced; also the lock around writing."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.writeback.files import explained, read_bytes, replace_file, sha256_of_bytes

JOURNAL_NAME = ".config.pbtxt.tune.journal"


@dataclass(frozen=True)
class Entry:
    """One write, noted before it happens, so that a crash cannot lose the way back.

    Attributes:
        action: ``apply`` or ``rollback``.
        at: ISO 8601, UTC.
        run_id: The run whose winner it was.
        sha256_before: Of the file replaced; ``None`` when there was none.
        sha256_after: Of the file written; ``None`` when it was removed.
    """

    action: str
    at: str
    run_id: str
    sha256_before: str | None
    sha256_after: str | None


class Journal:
    """An open, locked journal; made by `locked_journal` only."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def last(self) -> Entry | None:
        """The newest whole entry; a line a crash cut short stands for a write never begun."""
        for line in reversed(self.path.read_bytes().splitlines()):
            with contextlib.suppress(ValueError, TypeError):
                return Entry(**json.loads(line))
        return None

    def append(self, entry: Entry) -> None:
        """Adds an entry and waits until it is on disk."""
        content = self.path.read_bytes()
        cut_short = content and not content.endswith(b"\n")
        line = ("\n" if cut_short else "") + json.dumps(asdict(entry)) + "\n"
        os.write(self._descriptor, line.encode())
        os.fsync(self._descriptor)

    def keep(self, content: bytes) -> Path:
        """Stores a backup, named by its hash, and gives its path; the same content only once."""
        path = self._backup(sha256_of_bytes(content))
        if read_bytes(path) != content:
            replace_file(path, content)
        return path

    def kept(self, sha256: str) -> bytes:
        """The backup with this hash.

        Raises:
            EnvironmentNotReadyError: It is missing or damaged.
        """
        content = read_bytes(self._backup(sha256))
        if content is None or sha256_of_bytes(content) != sha256:
            raise EnvironmentNotReadyError(
                f"the backup {self._backup(sha256)} is missing or damaged; nothing was written",
                "restore the config by hand: the run's manifest.json holds it as config_text",
            )
        return content

    def _backup(self, sha256: str) -> Path:
        return self.path.with_name(f".config.pbtxt.tune.{sha256[:16]}.bak")


@contextlib.contextmanager
def locked_journal(model_directory: Path) -> Iterator[Journal]:
    """The journal of a model, locked against every other tune until the context is left.

    The lock is the journal's own, so it vanishes with the process that holds it.

    Raises:
        EnvironmentNotReadyError: The directory is missing or not writable, or the lock is held.
    """
    if not model_directory.is_dir():
        raise EnvironmentNotReadyError(
            f"no model directory {model_directory}", "check `repository` and `model` in the spec"
        )
    path = model_directory / JOURNAL_NAME
    with explained(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"another tune is writing to {model_directory}", "try again when it has ended"
            ) from error
        yield Journal(path, descriptor)
    finally:
        os.close(descriptor)


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
