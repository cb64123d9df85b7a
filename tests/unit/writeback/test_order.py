"""What is on disk before what: all that a power cut may rely on.

A killed process keeps what it wrote, since the system still has it; only the order of the calls
shows that nothing is renamed before it is synced.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.plans import AFTER, BEFORE, cut_short, make_file, make_plan

from tuner.errors import StalePlanError
from tuner.writeback.apply import apply
from tuner.writeback.files import stage_file
from tuner.writeback.journal import Action, Entry, Journal
from tuner.writeback.plan import WritePlan, sha256_of
from tuner.writeback.repository import FileState, OpenRepository, repair
from tuner.writeback.rollback import rollback
from tuner.writeback.target import Target

TEMPORARY = ".config.pbtxt.tune.tmp"
JOURNAL = ".tune.journal"


class Disk:
    """Notes what is synced, with what is in it by then, and what is renamed or removed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, ...]] = []
        self._patch = monkeypatch
        monkeypatch.setattr(os, "fsync", self._fsync)
        for name in ("replace", "unlink"):
            monkeypatch.setattr(Path, name, self._noted(name, getattr(Path, name)))

    def _fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.events.append(("sync directory",))
        elif path.name == JOURNAL:
            self.events.append(("sync journal", self._last_action(path)))
        else:
            self.events.append(("sync", path.name, path.read_bytes().decode()))

    def _last_action(self, journal: Path) -> str:
        action: str = json.loads(journal.read_text().splitlines()[-1])["action"]
        return action

    def _noted(self, what: str, call: Any) -> Any:
        def noted(path: Path, *args: Any, **kwargs: Any) -> Any:
            if path.exists():
                self.events.append((what, path.name))
            return call(path, *args, **kwargs)

        return noted


def kept(text: str) -> list[tuple[str, ...]]:
    """The calls that store a backup."""
    name = f".config.pbtxt.tune.{sha256_of(text)[:16]}.bak"
    temporary = f".{name}.tune.tmp"
    return [("sync", temporary, text), ("replace", temporary), ("sync directory",)]


RENAMED = [("replace", TEMPORARY), ("sync directory",)]


@pytest.mark.parametrize("files", [1, 2])
def test_all_that_is_needed_is_on_disk_before_the_first_config_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    plan = WritePlan(tuple(make_file(tmp_path, name) for name in ("a", "b")[:files]), "r1")
    disk = Disk(monkeypatch)
    apply(plan)
    assert disk.events == [
        ("sync directory",),  # the journal's name
        *files * kept(BEFORE),
        *files * [("sync", TEMPORARY, AFTER)],
        ("sync journal", "apply"),
        *files * RENAMED,
        ("sync journal", "done"),
    ]


def test_a_rollback_is_on_disk_in_the_same_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    apply(plan)
    disk = Disk(monkeypatch)
    rollback(tmp_path, "m")
    assert disk.events == [
        *kept(AFTER),
        ("sync", TEMPORARY, BEFORE),
        ("sync journal", "rollback"),
        *RENAMED,
        ("sync journal", "done"),
    ]


def test_a_removal_is_on_disk_when_rollback_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path, before=None)
    apply(plan)
    disk = Disk(monkeypatch)
    rollback(tmp_path, "m")
    assert disk.events == [
        *kept(AFTER),
        ("sync journal", "rollback"),
        ("unlink", "config.pbtxt"),
        ("sync directory",),
        ("sync journal", "done"),
    ]


@pytest.mark.parametrize("theirs", ["somebody's own\n", None])
def test_a_change_while_waiting_for_the_lock_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str | None
) -> None:
    """An editor's, or that of another tune, which took its file back."""
    plan = make_plan(tmp_path)
    lock = fcntl.flock

    def changed_meanwhile(descriptor: int, operation: int) -> None:
        plan.path.unlink(missing_ok=True)
        if theirs is not None:
            plan.path.write_text(theirs)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", changed_meanwhile)
    with pytest.raises(StalePlanError, match="now no file" if theirs is None else None):
        apply(plan)
    assert (plan.path.read_text() if plan.path.exists() else None) == theirs


@pytest.mark.parametrize("edited", ["a", "b", "c"])
def test_edit_saved_during_a_write_of_several_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    """After the check under the lock, which an editor does not take, and before the rename."""
    plan = WritePlan(tuple(make_file(tmp_path, name) for name in ("a", "b", "c")), "r1")
    append = Journal.append

    def saved_meanwhile(journal: Journal, entry: Entry) -> None:
        append(journal, entry)
        if entry.action is Action.APPLY:
            (tmp_path / edited / "config.pbtxt").write_text("# by hand\n")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", saved_meanwhile)
        with pytest.raises(StalePlanError, match=rf"{edited}/config\.pbtxt changed just before"):
            apply(plan)
    before = {file.model: file.path.read_bytes() for file in plan.files}
    assert before == {"a": BEFORE.encode(), "b": BEFORE.encode(), "c": BEFORE.encode()} | {
        edited: b"# by hand\n"
    }
    assert not list(tmp_path.glob("*/*.tmp")) + list(tmp_path.glob("*/.*.tmp"))
    (tmp_path / edited / "config.pbtxt").write_bytes(BEFORE.encode())
    assert apply(plan).changed


def test_edit_saved_before_a_backup_is_made_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    find = OpenRepository.find

    def saved_meanwhile(opened: OpenRepository, target: Target) -> FileState:
        target.real.write_text("# by hand\n")
        return find(opened, target)

    monkeypatch.setattr(OpenRepository, "find", saved_meanwhile)
    with pytest.raises(StalePlanError, match="run r1"):
        apply(plan)
    assert plan.path.read_text() == "# by hand\n"


def test_edit_saved_while_half_a_write_is_undone_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = WritePlan(tuple(make_file(tmp_path, name) for name in ("a", "b")), "r1")
    cut_short(plan, "a")

    def saved_meanwhile(path: Path, content: bytes, like: Path) -> list[str]:
        path.write_text("# by hand\n")
        return stage_file(path, content, like)

    monkeypatch.setattr("tuner.writeback.repository.stage_file", saved_meanwhile)
    with pytest.raises(StalePlanError, match=r"a/config\.pbtxt changed just before"):
        repair(tmp_path)
    before = [file.path.read_bytes() for file in plan.files]
    assert before == [b"# by hand\n", BEFORE.encode()]
