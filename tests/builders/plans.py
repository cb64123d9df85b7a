"""Makes model directories and plans to write to them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tuner.writeback.backups import keep_backup
from tuner.writeback.journal import Action, Entry, FileChange, locked_journal
from tuner.writeback.plan import FilePlan, WritePlan, sha256_of
from tuner.writeback.target import Written, WrittenFile

BEFORE = 'name: "m"\r\n# a comment: é\nmax_batch_size: 8\n'
AFTER = 'name: "m"\r\n# a comment: é\nmax_batch_size: 16\n'


class OneFile(WritePlan):
    """A plan of one file, with the file's facts at hand."""

    @property
    def path(self) -> Path:
        return self.files[0].path

    @property
    def sha256_before(self) -> str | None:
        return self.files[0].sha256_before

    @property
    def sha256_after(self) -> str:
        return self.files[0].sha256_after


def make_plan(repository: Path, before: str | None = BEFORE, after: str = AFTER) -> OneFile:
    return OneFile((make_file(repository, "m", before, after),), "r1")


def make_file(
    repository: Path,
    model: str,
    before: str | None = BEFORE,
    after: str = AFTER,
    config: str = "config.pbtxt",
) -> FilePlan:
    """A model's directory, and the plan to replace its config."""
    path = repository / model / config
    (repository / model / "1").mkdir(parents=True, exist_ok=True)
    if before is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(before.encode())
    sha256 = None if before is None else sha256_of(before)
    return FilePlan(model, path, sha256, before, after)


def only(written: Written) -> WrittenFile:
    """What became of the one file of a plan."""
    (file,) = written.files
    return file


def cut_short(plan: WritePlan, *done: str, action: Action = Action.APPLY) -> None:
    """What a kill between the renames leaves, of which those ``done`` were made."""
    turn = 1 if action is Action.APPLY else -1
    texts = {f.path: (f.text_before, f.text_after)[::turn] for f in plan.files}
    hashes = {f.path: (f.sha256_before, f.sha256_after)[::turn] for f in plan.files}
    for file in plan.files:
        file.path.parent.mkdir(exist_ok=True)
        for text in filter(None, texts[file.path]):
            keep_backup(file.path, text.encode())
    note(plan.repository, action, plan.run_id, hashes)
    for file in plan.files:
        if file.model in done:
            wanted = texts[file.path][1]
            file.path.unlink() if wanted is None else file.path.write_text(wanted)


def note(
    repository: Path, action: Action, run_id: str, hashes: Mapping[Path, Sequence[str | None]]
) -> None:
    """The entry of a write that never went further."""
    changes = (FileChange(str(p.relative_to(repository)), *both) for p, both in hashes.items())
    with locked_journal(repository) as journal:
        journal.append(Entry(action, "now", run_id, tuple(changes)))


def make_read_only(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the system say that this directory is not writable, also where root asks."""
    real = os.access

    def access(path: Path, mode: int) -> bool:
        return real(path, mode) and not (mode & os.W_OK and Path(path) == directory)

    monkeypatch.setattr(os, "access", access)
