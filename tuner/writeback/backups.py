"""Copies of replaced configs, each beside its config and named by the hash of its content."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.writeback.files import (
    explained,
    read_plain,
    replace_file,
    sha256_of_bytes,
)
from tuner.writeback.journal import Action, FileChange

#: Number of backups of tune's own writes that always remain.
KEPT = 20


def backup_of(config: Path, sha256: str) -> Path:
    return config.with_name(f".{config.name}.tune.{sha256[:16]}.bak")


def keep_backup(config: Path, content: bytes) -> Path:
    """Stores a backup with the current permissions of the config; returns its path."""
    path = backup_of(config, sha256_of_bytes(content))
    replace_file(path, content, like=config)
    return path


def read_backup(config: Path, sha256: str) -> bytes:
    """The content with this hash.

    Raises:
        EnvironmentNotReadyError: The backup is missing or damaged.
    """
    path = backup_of(config, sha256)
    with explained(config):
        content = read_plain(path)
    if content is None or sha256_of_bytes(content) != sha256:
        raise EnvironmentNotReadyError(
            f"the backup {path} is missing or damaged; nothing was written",
            "restore the config by hand: the run's manifest.json has its text, in `models`",
        )
    return content


def prune_backups(config: Path, newest_first: Sequence[tuple[Action, FileChange]]) -> None:
    """Removes backups of tune's own writes that are older than the newest `KEPT`.

    Backups of anybody else's files stay, above all that of the first config. The write is complete
    by now, so a failure is ignored.
    """
    hashes = ((c.sha256_before, c.sha256_after) for _, c in newest_first)
    newest = (sha256 for pair in hashes for sha256 in pair if sha256)
    paths = dict.fromkeys(backup_of(config, sha256) for sha256 in newest)
    with contextlib.suppress(OSError):
        there = [path for path in paths if path.exists()]
        ours = {backup_of(config, sha256) for sha256 in _written_by_tune(newest_first)}
        for path in ours.intersection(there[KEPT:]):
            path.unlink()


def _written_by_tune(newest_first: Sequence[tuple[Action, FileChange]]) -> set[str]:
    """Hashes of winners, without those of configs that existed before tune wrote them."""
    ours: set[str | None] = set()
    foreign: set[str | None] = {None}
    for action, change in reversed(newest_first):
        foreign |= {change.sha256_before} - ours
        ours |= {change.sha256_after} if action is Action.APPLY else set()
    return {sha256 for sha256 in ours - foreign if sha256}


def like_of(config: Path, content: bytes | None) -> Path:
    """The file whose permissions a restored file gets: the current one, else the backup."""
    if config.exists() or content is None:
        return config
    return backup_of(config, sha256_of_bytes(content))
