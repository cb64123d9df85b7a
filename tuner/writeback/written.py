"""What a write or a rollback did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.writeback.target import Target


@dataclass(frozen=True)
class WrittenFile:
    """What was done to one file.

    Attributes:
        backup: Copy of the file replaced; ``None`` when there was none.
        changed: False when the file already had the wanted content.
    """

    path: Path
    real: Path
    sha256_before: str | None
    sha256_after: str | None
    backup: Path | None
    changed: bool
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "sha256_before": self.sha256_before,
            "sha256_after": self.sha256_after,
            "backup": None if self.backup is None else str(self.backup),
        }


@dataclass(frozen=True)
class Written:
    """What was done to the files of one write or one rollback.

    Attributes:
        files: Its files, changed ones first; without those that a winner leaves as they were,
            unless it changes none.
    """

    files: tuple[WrittenFile, ...]
    run_id: str
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """False when every file already had the wanted content."""
        return any(file.changed for file in self.files)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Also those of each file."""
        return (*self.notes, *(note for file in self.files for note in file.notes))

    def to_json(self) -> dict[str, Any]:
        """``written`` of `result.json`: the first file, and the others below it."""
        first, *others = (file.to_json() for file in self.files)
        return {**first, "others": others} if others else first


def unchanged(target: Target, sha256: str | None) -> WrittenFile:
    """A file that already had the wanted content."""
    return WrittenFile(target.path, target.real, sha256, sha256, None, changed=False, notes=())


def replaced(
    target: Target,
    hashes: tuple[str | None, str | None],
    backup: Path | None,
    notes: tuple[str, ...] = (),
) -> WrittenFile:
    """A file that was replaced; ``hashes`` are those before and after."""
    before, after = hashes
    said = (*target.notes, *notes)
    return WrittenFile(target.path, target.real, before, after, backup, changed=True, notes=said)
