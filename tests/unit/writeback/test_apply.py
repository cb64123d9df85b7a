from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from builders.plans import AFTER, BEFORE, make_plan, only

from tuner.errors import EnvironmentNotReadyError, StalePlanError
from tuner.writeback.apply import apply
from tuner.writeback.journal import journal_of
from tuner.writeback.plan import sha256_of
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


def test_a_missing_model_directory_is_explained(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, before=None)
    shutil.rmtree(plan.path.parent)
    with pytest.raises(EnvironmentNotReadyError, match="no model directory"):
        apply(plan)
