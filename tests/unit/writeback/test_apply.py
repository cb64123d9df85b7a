"""Which file is written, a config of the repository or one that the user was told of, and how."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from builders.messages_writes import linked
from builders.plans import AFTER, BEFORE, make_plan, make_read_only, only

from tuner.errors import EnvironmentNotReadyError, SpecError, StalePlanError
from tuner.writeback.apply import apply
from tuner.writeback.journal import journal_of, locked_journal
from tuner.writeback.plan import WritePlan, sha256_of
from tuner.writeback.rollback import is_back, rollback
from tuner.writeback.target import is_config_of, target_of


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
    assert written.facts.to_json() == {
        "path": str(plan.path),
        "sha256_before": sha256_of(BEFORE),
        "sha256_after": sha256_of(AFTER),
        "backup": str(only(written).backup),
    }


@pytest.mark.parametrize("cause", ["a read-only model", "a read-only repository", "a journal"])
def test_dry_run_refuses_what_apply_would_refuse(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    if cause == "a journal":
        journal_of(tmp_path).symlink_to("elsewhere")
        with pytest.raises(EnvironmentNotReadyError) as refused:
            apply(plan)
        with pytest.raises(EnvironmentNotReadyError) as error:
            apply(plan, dry_run=True)
        assert str(error.value) == str(refused.value)
    else:
        place = tmp_path if cause == "a read-only repository" else plan.path.parent
        make_read_only(place, monkeypatch)
        with pytest.raises(EnvironmentNotReadyError, match="cannot write"):
            apply(plan, dry_run=True)
    assert plan.path.read_bytes() == BEFORE.encode()


@pytest.mark.parametrize("now", ["edited meanwhile\n", None])
def test_a_file_changed_since_the_run_is_refused(tmp_path: Path, now: str | None) -> None:
    plan = make_plan(tmp_path)
    if now is None:
        plan.path.unlink()
    else:
        plan.path.write_text(now)
    with pytest.raises(StalePlanError, match="r1") as caught:
        apply(plan)
    assert caught.value.exit_code == 13
    assert names(plan.path.parent) == ({"1"} if now is None else {"1", "config.pbtxt"})


def test_a_file_that_appeared_since_the_run_is_refused(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, before=None)
    plan.path.write_text("somebody's own\n")
    with pytest.raises(StalePlanError):
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
    assert names(plan.path.parent) == {"1", "config.pbtxt"}  # the backup lies beside the target
    rollback(tmp_path, "m")
    assert plan.path.is_symlink()
    assert target.read_bytes() == BEFORE.encode()


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/home/u/.bashrc", "u"),
        ("/home/u/.ssh/authorized_keys", ".ssh"),
        ("/home/u/.ssh/config.pbtxt", ".ssh"),
        ("/models/m/config.pbtxt/../../../etc/passwd", "m"),
        ("/models/m/../config.pbtxt", ".."),
        ("/models/m/config.pbtxt", "n"),
        ("/models/m/other.pbtxt", "m"),
        ("/models/m/configs/other.txt", "m"),
        ("/models/m/configs/../other.pbtxt", "m"),
        ("/models/m/configs/config.pbtxt", "m"),
        ("/models/n/configs/a100.pbtxt", "m"),
        ("config.pbtxt", ""),
        ("/models/a\0b/m/config.pbtxt", "m"),
        ("/models/\ud800/m/config.pbtxt", "m"),
    ],
)
def test_nothing_else_than_a_models_config_is_one(path: str, model: str) -> None:
    assert not is_config_of(Path(path), model)
    with pytest.raises(SpecError):
        target_of(Path(path), model)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "dead link"])
def test_config_that_is_no_plain_file_is_neither_read_nor_replaced(
    tmp_path: Path, kind: str
) -> None:
    plan = make_plan(tmp_path)
    plan.path.unlink()
    if kind == "pipe":
        os.mkfifo(plan.path)
    elif kind == "directory":
        plan.path.mkdir()
    else:
        plan.path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "new")
    with pytest.raises(SpecError):
        apply(plan)
    with pytest.raises(SpecError):
        rollback(tmp_path, "m")
    assert not is_back(plan.path, plan.sha256_before, plan.sha256_after)
    assert sorted(p.name for p in plan.path.parent.iterdir()) == ["1", "config.pbtxt"]
    assert not (tmp_path / "new").exists()


def test_a_model_directory_that_is_a_link_is_written_where_it_leads_and_put_back(
    tmp_path: Path,
) -> None:
    (real,) = make_plan(tmp_path / "real").files
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "m").symlink_to("../real/m")
    plan = WritePlan((replace(real, path=repository / "m" / "config.pbtxt"),), "r1")
    written = apply(plan)
    note = f"{repository / 'm'} is a link to {real.path.parent}: {real.path} is written"
    assert written.all_notes == (note,)
    assert real.path.read_bytes() == AFTER.encode()
    assert (repository / "m").readlink() == Path("../real/m")
    rollback(repository, "m")
    assert real.path.read_bytes() == BEFORE.encode()
    assert (repository / "m").readlink() == Path("../real/m")


@pytest.mark.parametrize("link", ["config.pbtxt", "directory", "repository"])
def test_a_config_that_kubernetes_mounted_is_changed_in_its_config_map(
    tmp_path: Path, link: str
) -> None:
    mount = tmp_path / "mnt"
    data = mount / "..2026_09_01_08_00_00.123456789"
    model = {"config.pbtxt": mount, "directory": mount / "m"}.get(link, mount / "models" / "m")
    make_plan(data / model.relative_to(mount).parent)
    (mount / "..data").symlink_to(data.name)
    first = model.relative_to(mount).parts
    if first:
        (mount / first[0]).symlink_to(f"..data/{first[0]}")
    else:
        model = mount / "m"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").symlink_to(mount / "..data" / "m" / "config.pbtxt")
    with pytest.raises(EnvironmentNotReadyError, match="Kubernetes") as caught:
        target_of(model / "config.pbtxt", "m")
    assert "ConfigMap" in caught.value.hint


def test_a_repository_that_is_a_link_is_no_link_to_tell_of(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "disk")
    (tmp_path / "models").symlink_to(tmp_path / "disk")
    target = target_of(tmp_path / "models" / "m" / "config.pbtxt", "m")
    assert (target.real, target.notes) == (plan.path, ())


def test_two_models_with_one_file_are_reported_and_exclude_each_other(tmp_path: Path) -> None:
    target = tmp_path / "configs" / "both.pbtxt"
    plan = linked(tmp_path, target)
    (tmp_path / "other" / "1").mkdir(parents=True)
    (tmp_path / "other" / "config.pbtxt").symlink_to(target)
    linking, other = both = apply(plan, dry_run=True).files[0].notes
    assert linking.startswith(f"{plan.path} ")
    assert linking.endswith(f" {target}")
    assert other.startswith(f"{target} ")
    assert " other " in other
    with locked_journal(tmp_path), pytest.raises(EnvironmentNotReadyError):
        apply(plan)
    assert apply(plan).all_notes == both


def test_the_preview_shows_the_change_of_the_file_on_disk(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    (file,) = plan.files
    stated = replace(plan, files=(replace(file, text_before="something harmless\n"),))
    assert apply(stated, dry_run=True).files[0].diff == file.diff()
    apply(plan)
    assert apply(stated, dry_run=True).files[0].diff == ""
