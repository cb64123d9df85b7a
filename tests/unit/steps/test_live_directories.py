"""What a run keeps in a temporary directory is there for as long as the run is, however long."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from builders.jobs import a_job

from tuner.bench.timebook import TimeBook
from tuner.machine.process import private_directory
from tuner.programs.worker import worker as joining
from tuner.steps.events import Silent
from tuner.steps.job import Job
from tuner.steps.serving import Serving
from tuner.steps.session import set_up_bench
from tuner.steps.tools import Programs

#: More than the age from which on an abandoned directory is removed.
AGE_S = 61.0


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def an_hour_later(temporary: Path) -> list[Path]:
    """Ages what is there, then does what every start of a server does; returns what is left."""
    for path in temporary.iterdir():
        then = path.stat().st_mtime - 60 * AGE_S
        os.utime(path, (then, then))
    before = set(temporary.iterdir())
    with private_directory() as sweeping:
        return sorted(before & (set(temporary.iterdir()) - {sweeping}))


@contextmanager
def a_rig(job: Job, tmp_path: Path) -> Iterator[None]:
    programs = Programs(cast("Any", None), cast("Any", None), cast("Any", None), "2.51.0")
    served = Serving(job, programs, cast("Any", None))
    with set_up_bench(served, Silent(), TimeBook(), lambda: None):
        yield


def a_workers_log(_: Job, __: Path) -> AbstractContextManager[Path]:
    return joining._logs(None)


@pytest.mark.parametrize("owner", [a_rig, a_workers_log])
def test_an_open_directory_is_never_swept(
    owner: Any,
    job: Job,
    tmp_path: Path,
    temporary: Path,
) -> None:
    with owner(job, tmp_path):
        (mine,) = temporary.iterdir()
        (mine / "inputs-1.json").write_text("{}")
        assert an_hour_later(temporary) == [mine]
        assert (mine / "inputs-1.json").exists()
    assert list(temporary.iterdir()) == []


def test_an_abandoned_one_is_removed_and_a_foreign_one_is_not(temporary: Path) -> None:
    abandoned = temporary / ".tune-private-abandoned"
    foreign = [temporary / name for name in ("triton-tune-old", "tune-gpu-bundle", "other")]
    for path in (abandoned, *foreign):
        path.mkdir()
        (path / "file").touch()
    assert an_hour_later(temporary) == sorted(foreign)
