"""Writing where the file system, or the user's rights, are less than usual."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
from builders.plans import AFTER, BEFORE, make_plan, only

from tuner.errors import EnvironmentNotReadyError
from tuner.writeback.apply import apply
from tuner.writeback.journal import journal_of
from tuner.writeback.rollback import rollback

NOBODY = 0xFFFFFFFF  # in an entry of an access control list that is about no named user or group


def failing(number: int) -> Any:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.ENODATA, errno.EINVAL])
def test_a_file_system_without_extended_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    plan = make_plan(tmp_path)
    monkeypatch.setattr(os, "listxattr", failing(number))
    assert apply(plan).changed
    assert plan.path.read_bytes() == AFTER.encode()


def test_a_file_system_that_fails_is_no_file_system_without_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    monkeypatch.setattr(os, "listxattr", failing(errno.EIO))
    with pytest.raises(EnvironmentNotReadyError, match="Input/output error"):
        apply(plan)
    assert plan.path.read_bytes() == BEFORE.encode()


#: One for the group 1234 besides the owner's and others'.
ACCESS_CONTROL_LIST = struct.pack(
    "<I" + 5 * "HHI", 2, *(1, 6, NOBODY), *(4, 4, NOBODY), *(8, 6, 1234), *(16, 6, NOBODY),
    *(32, 0, NOBODY),
)  # fmt: skip


@pytest.mark.parametrize("mode", [0o660, 0o440])
@pytest.mark.parametrize(
    ("name", "value"), [("user.origin", b"us"), ("system.posix_acl_access", ACCESS_CONTROL_LIST)]
)
def test_extended_attributes_and_access_control_lists_are_kept_or_their_loss_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: bytes, mode: int
) -> None:
    plan = make_plan(tmp_path)
    try:
        os.setxattr(plan.path, name, value)
    except OSError as error:
        pytest.skip(f"this file system has none: {error}")
    plan.path.chmod(mode)
    value = os.getxattr(plan.path, name)  # the mode is a part of the list
    assert apply(plan).all_notes == ()
    assert os.getxattr(plan.path, name) == value
    assert stat.S_IMODE(plan.path.stat().st_mode) == mode
    monkeypatch.setattr(os, "setxattr", failing(errno.ENOSPC))
    expected = [f"its extended attribute {name} could not be kept"]
    assert list(rollback(tmp_path, "m").all_notes) == expected
    assert plan.path.read_bytes() == BEFORE.encode()


def fsync_refused(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """For directories."""
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            failing(number)()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)


def test_a_file_system_that_syncs_no_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    fsync_refused(monkeypatch, errno.EINVAL)
    assert apply(plan).changed
    assert rollback(tmp_path, "m").changed
    assert plan.path.read_bytes() == BEFORE.encode()


def test_failure_to_sync_a_directory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    fsync_refused(monkeypatch, errno.EIO)
    with pytest.raises(EnvironmentNotReadyError, match="Input/output error"):
        apply(plan)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_written_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    plan = make_plan(tmp_path)
    monkeypatch.setattr(fcntl, "flock", failing(number))
    written = apply(plan)
    assert plan.path.read_bytes() == AFTER.encode()
    assert str(tmp_path) in written.all_notes[0]


def test_a_lock_that_fails_is_not_taken_for_another_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(EnvironmentNotReadyError) as caught:
        apply(plan)
    assert "another tune" not in caught.value.message
    assert plan.path.read_bytes() == BEFORE.encode()


def test_a_call_may_write_less_than_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data)[:3]))
    apply(plan)
    assert plan.path.read_bytes() == AFTER.encode()
    rollback(tmp_path, "m")
    assert plan.path.read_bytes() == BEFORE.encode()


class Colleague:
    """Owns a file; the user may not give files away, and may be in the file's group or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, *, same_group: bool) -> None:
        self.owners: list[tuple[int, int]] = []
        self._stat = Path.stat
        self._path = path
        self._gid = os.getegid() if same_group else 54321
        monkeypatch.setattr(Path, "stat", lambda p, **keys: self._status(p, **keys))  # noqa: PLW0108
        monkeypatch.setattr(os, "fchown", self._fchown)

    def _status(self, path: Path, **keys: Any) -> os.stat_result:
        status = self._stat(path, **keys)
        if path != self._path:
            return status
        values = list(status)
        values[4:6] = [54321, self._gid]
        return os.stat_result(values)

    def _fchown(self, descriptor: int, uid: int, gid: int) -> None:
        self.owners.append((uid, gid))
        failing(errno.EPERM)()


@pytest.mark.parametrize(
    ("same_group", "owner", "said", "mode"),
    [
        (True, (54321, os.getegid()), "", 0o664),
        (False, (-1, 54321), ", group 54321", 0o644),  # its rights are handed to no other group
    ],
)
def test_a_colleagues_file_in_a_shared_repository_is_written_and_that_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    same_group: bool,
    owner: tuple[int, int],
    said: str,
    mode: int,
) -> None:
    plan = make_plan(tmp_path)
    plan.path.chmod(0o4664)
    colleague = Colleague(monkeypatch, plan.path, same_group=same_group)
    (note,) = apply(plan).all_notes
    assert plan.path.read_bytes() == AFTER.encode()
    assert owner in colleague.owners
    assert "it was user 54321's" in note
    assert note.endswith(said)
    monkeypatch.undo()
    assert stat.S_IMODE(plan.path.stat().st_mode) == mode


def test_nothing_beside_a_private_config_is_less_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    plan.path.chmod(0o600)
    made: list[int] = []
    opened = os.open

    def noting(path: Any, flags: int, mode: int = 0o777, **keys: Any) -> int:
        if flags & os.O_CREAT:
            made.append(mode)
        return opened(path, flags, mode, **keys)

    monkeypatch.setattr(os, "open", noting)
    written = apply(plan)
    assert set(made) == {0o600}
    assert only(written).backup is not None
    for path in (plan.path, only(written).backup, journal_of(tmp_path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    plan.path.unlink()
    rollback(tmp_path, "m", force=True)
    assert stat.S_IMODE(plan.path.stat().st_mode) == 0o600


def test_a_backup_is_as_private_as_its_config_has_become(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    apply(plan)
    rollback(tmp_path, "m")
    plan.path.chmod(0o600)
    backup = only(apply(plan)).backup
    assert backup is not None
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("directory", "journal"),
    [(0o775, 0o664), (0o755, 0o644), (0o705, 0o604), (0o777, 0o664), (0o700, 0o600)],
)
def test_the_journal_is_read_and_written_by_whom_the_repository_is(
    tmp_path: Path, directory: int, journal: int
) -> None:
    plan = make_plan(tmp_path)
    tmp_path.chmod(directory)
    os.chown(tmp_path, -1, os.getegid())
    old = os.umask(0)
    try:
        apply(plan)
    finally:
        os.umask(old)
    assert stat.S_IMODE(journal_of(tmp_path).stat().st_mode) == journal


def test_a_journal_that_is_a_colleagues_alone_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path)
    apply(plan)
    opened = os.open

    def refused(path: Any, flags: int, *args: Any) -> int:
        if Path(path).name == journal_of(tmp_path).name and not flags & os.O_CREAT:
            failing(errno.EACCES)()
        return opened(path, flags, *args)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(EnvironmentNotReadyError) as caught:
        rollback(tmp_path, "m")
    assert "chmod g+w" in caught.value.hint
