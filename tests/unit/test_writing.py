"""Files of a run are whole or not there, in the run, and nothing else is left."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner.errors import EnvironmentNotReadyError
from tuner.record.store import RunStore
from tuner.writing import open_run_file, run_subdirectory, write_text


def full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentNotReadyError, match=r"result\.json: no space left") as refused:
        write_text(path, "new")
    assert "--output" in refused.value.hint
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_and_directory_are_on_disk_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(tmp_path / "a", "text")
    file, directory = synced
    assert file.startswith(str(tmp_path / ".tune-"))
    assert directory == str(tmp_path)


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    link = tmp_path / "report.html"
    link.symlink_to(theirs)
    write_text(link, "ours")
    assert theirs.read_text() == "theirs"
    assert link.read_text() == "ours"


def test_a_directory_that_leads_out_of_the_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "best").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentNotReadyError, match="is a link to"):
        run_subdirectory(tmp_path, "best")


@pytest.mark.parametrize("kind", ["a link", "a pipe"])
def test_file_to_add_to_is_refused_where_it_is_no_regular_file(kind: str, tmp_path: Path) -> None:
    path, theirs = tmp_path / "server.log", tmp_path / "theirs"
    if kind == "a link":
        theirs.write_text("theirs")
        path.symlink_to(theirs)
    else:
        os.mkfifo(path)
    with pytest.raises(EnvironmentNotReadyError, match=rf"server\.log.* is {kind}"):
        open_run_file(path)
    assert kind == "a pipe" or theirs.read_text() == "theirs"


@contextmanager
def _added(store: RunStore, name: str) -> Iterator[None]:
    store._append(name, {})
    yield


@pytest.mark.parametrize("name", [".lock", "trials.jsonl"])
def test_run_refuses_to_add_to_a_file_that_is_a_link(name: str, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    store = RunStore.create(tmp_path, "run")
    (store.directory / name).symlink_to(theirs)
    adding = store.locked() if name == ".lock" else _added(store, name)
    with pytest.raises(EnvironmentNotReadyError, match=rf"{name} is a link to"), adding:
        pass
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_not_another_tune(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", flock)
    store = RunStore.create(tmp_path, "run")
    with store.locked(), _added(store, "trials.jsonl"):
        pass
    assert (store.directory / "trials.jsonl").read_text() == "{}\n"
