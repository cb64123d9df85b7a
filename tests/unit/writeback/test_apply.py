from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.plans import AFTER, BEFORE, FALLIBLE, Fuse, make_plan, only

from tuner.errors import EnvironmentNotReadyError, StalePlanError
from tuner.writeback.journal import journal_of, locked_journal
from tuner.writeback.plan import apply, sha256_of
from tuner.writeback.rollback import rollback


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_replaces_the_file_byte_for_byte_and_keeps_a_backup(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    written = apply(plan)
    assert plan.path.read_bytes() == AFTER.encode()
    assert written.changed
    assert only(written).sha256_before == sha256_of(BEFORE)
    assert only(written).sha256_after == sha256_of(AFTER)
    assert only(written).backup.read_bytes() == BEFORE.encode()
    assert written.to_json() == {
        "path": str(plan.path),
        "sha256_before": sha256_of(BEFORE),
        "sha256_after": sha256_of(AFTER),
        "backup": str(only(written).backup),
    }


def test_leaves_only_hidden_plain_files_beside_it(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    written = apply(plan)
    journal = journal_of(plan.path).name
    assert journal == ".config.pbtxt.tune.journal"
    assert names(plan.path.parent) == {"1", "config.pbtxt", journal, only(written).backup.name}
    assert only(written).backup.name.startswith(".")
    assert names(tmp_path) == {"m"}


def test_creates_a_file_where_there_was_none(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, before=None)
    written = apply(plan)
    assert plan.path.read_bytes() == AFTER.encode()
    assert (only(written).sha256_before, only(written).backup) == (None, None)


def test_applying_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    apply(plan)
    status = plan.path.stat()
    again = apply(plan)
    assert not again.changed
    assert plan.path.stat().st_mtime_ns == status.st_mtime_ns
    assert plan.path.stat().st_ino == status.st_ino


@pytest.mark.parametrize("now", ["edited meanwhile\n", None])
def test_a_file_changed_since_the_run_is_refused(tmp_path: Path, now: str | None) -> None:
    plan = make_plan(tmp_path)
    if now is None:
        plan.path.unlink()
    else:
        plan.path.write_text(now)
    with pytest.raises(StalePlanError, match="changed since run r1") as caught:
        apply(plan)
    assert caught.value.exit_code == 13
    assert names(plan.path.parent) == ({"1"} if now is None else {"1", "config.pbtxt"})


def test_a_file_that_appeared_since_the_run_is_refused(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, before=None)
    plan.path.write_text("somebody's own\n")
    with pytest.raises(StalePlanError, match="then no file"):
        apply(plan)
    assert plan.path.read_text() == "somebody's own\n"


def test_keeps_permissions_and_owner(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    plan.path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(plan.path, 1234, 2345)
    before = plan.path.stat()
    apply(plan)
    after = plan.path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert after.st_ino != before.st_ino


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o000, 0o666)])
def test_a_new_file_has_ordinary_permissions(tmp_path: Path, umask: int, mode: int) -> None:
    plan = make_plan(tmp_path, before=None)
    old = os.umask(umask)
    try:
        apply(plan)
    finally:
        os.umask(old)
    assert plan.path.stat().st_mode & 0o777 == mode


def test_a_symbolic_link_stays_one_and_its_target_is_replaced(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    target = tmp_path / "configs" / "m.pbtxt"
    target.parent.mkdir()
    plan.path.rename(target)
    plan.path.symlink_to(Path("..") / "configs" / "m.pbtxt")
    apply(plan)
    assert plan.path.is_symlink()
    assert target.read_bytes() == AFTER.encode()
    assert names(plan.path.parent) == {"1", "config.pbtxt"}  # all of it lies beside the target
    assert ".m.pbtxt.tune.journal" in names(target.parent)
    rollback(tmp_path, "m")
    assert plan.path.is_symlink()
    assert target.read_bytes() == BEFORE.encode()


def test_a_leftover_temporary_file_does_not_matter(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    leftover = plan.path.with_name(".config.pbtxt.tune.tmp")
    leftover.write_text("from a killed process")
    apply(plan)
    assert plan.path.read_bytes() == AFTER.encode()
    assert not leftover.exists()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    with locked_journal(plan.path):
        with pytest.raises(EnvironmentNotReadyError, match="another tune is writing"):
            apply(plan)
    assert plan.path.read_bytes() == BEFORE.encode()
    assert apply(plan).changed


def test_a_missing_model_directory_is_explained(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, before=None)
    shutil.rmtree(plan.path.parent)
    with pytest.raises(EnvironmentNotReadyError, match="no model directory"):
        apply(plan)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_explained(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    plan.path.parent.chmod(0o555)
    try:
        with pytest.raises(EnvironmentNotReadyError, match="cannot write") as caught:
            apply(plan)
    finally:
        plan.path.parent.chmod(0o755)
    assert "writable" in caught.value.hint


def with_fuse(monkeypatch: pytest.MonkeyPatch, after: int) -> Fuse:
    fuse = Fuse(after)
    for owner, name in FALLIBLE:
        monkeypatch.setattr(owner, name, fuse.wrap(getattr(owner, name)))
    return fuse


@pytest.mark.parametrize("before", [BEFORE, None])
def test_each_system_call_may_fail(tmp_path: Path, before: str | None) -> None:
    """Whichever call fails, the file is whole, nothing temporary stays, and a retry succeeds."""
    old = None if before is None else before.encode()
    failures = 0
    for after in range(100):
        repository = tmp_path / str(after)
        plan = make_plan(repository, before)
        with pytest.MonkeyPatch.context() as patch:
            fuse = with_fuse(patch, after)
            if fuse_blows(fuse, lambda plan=plan: apply(plan)):  # type: ignore[misc]
                failures += 1
        now = plan.path.read_bytes() if plan.path.exists() else None
        assert now in (old, AFTER.encode())
        assert not [n for n in names(plan.path.parent) if n.endswith(".tmp")]
        if not fuse.blown:
            break
        apply(plan)
        assert plan.path.read_bytes() == AFTER.encode()
        rollback(repository, "m")
        assert (plan.path.read_bytes() if plan.path.exists() else None) == old
    else:
        pytest.fail("the fuse never burnt out")
    assert failures >= 10


def test_each_system_call_of_a_rollback_may_fail(tmp_path: Path) -> None:
    failures = 0
    for after in range(100):
        repository = tmp_path / str(after)
        plan = make_plan(repository)
        apply(plan)
        with pytest.MonkeyPatch.context() as patch:
            fuse = with_fuse(patch, after)
            failures += fuse_blows(fuse, lambda repository=repository: rollback(repository, "m"))  # type: ignore[misc]
        assert plan.path.read_bytes() in (BEFORE.encode(), AFTER.encode())
        if not fuse.blown:
            break
        rollback(repository, "m")
        assert plan.path.read_bytes() == BEFORE.encode()
    else:
        pytest.fail("the fuse never burnt out")
    assert failures >= 10


def fuse_blows(fuse: Fuse, action: Callable[[], object]) -> bool:
    """Runs ``action``; True when it failed, which it must do with an explanation."""
    try:
        action()
    except EnvironmentNotReadyError as caught:
        error = caught
    else:
        return False
    assert fuse.blown
    assert error.hint
    return True
