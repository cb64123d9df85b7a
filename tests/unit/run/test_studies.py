"""A damaged study is told from a sound one, and moved aside whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from builders.jobs import a_job
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import OperationalError

from tuner.bench.job import Job
from tuner.record.store import STUDY, RunStore
from tuner.run.open_run import closed_to_workers, damage, study_of
from tuner.search.study.storage import Reconnection


def database(path: Path, *tables: str) -> None:
    with closing(sqlite3.connect(path)) as opened:
        for table in tables:
            opened.execute(f"CREATE TABLE {table} (a)")
        opened.commit()


def a_hole(path: Path) -> None:
    """A database of several pages, one of which is overwritten."""
    database(path, "studies")
    with closing(sqlite3.connect(path)) as opened:
        opened.executemany("INSERT INTO studies VALUES (?)", [("x" * 900,)] * 60)
        opened.commit()
    data = bytearray(path.read_bytes())
    data[-4096:] = b"\xff" * 4096
    path.write_bytes(data)


def an_endless_view(path: Path) -> None:
    database(path, "studies", "trial_user_attributes", "trial_params")
    with closing(sqlite3.connect(path)) as opened:
        opened.execute(
            "CREATE VIEW study_user_attributes AS WITH RECURSIVE n(value_json) AS"
            " (SELECT 0 UNION ALL SELECT value_json + 1 FROM n) SELECT value_json FROM n"
        )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (an_endless_view, "views, triggers or virtual tables"),
        (lambda path: Path(f"{path}-journal").symlink_to("nowhere"), "not a file"),
        (lambda path: None, ""),
        (lambda path: path.touch(), ""),
        (lambda path: database(path, "studies"), ""),
        (lambda path: database(path, "studies", "trials"), ""),
        (lambda path: database(path, "accounts"), "another program's database"),
        (lambda path: path.mkdir(), "not a file"),
        (lambda path: path.symlink_to("nowhere"), "not a file"),
        (lambda path: path.write_bytes(b"garbage" * 500), "not a database"),
        (a_hole, "its pages do not fit together"),
    ],
)
def test_what_is_wrong_with_a_study_is_said(
    make: Callable[[Path], Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a study.db"
    make(path)
    assert damage(path) == said if not said else said in damage(path)


def test_a_study_in_use_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    path = tmp_path / "study.db"
    database(path, "accounts")
    with closing(sqlite3.connect(path)) as user:
        user.execute("BEGIN EXCLUSIVE")
        assert damage(path) == ""
    assert damage(path) != ""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return a_job(tmp_path)


def test_what_sqlite_keeps_beside_a_damaged_study_goes_with_it(job: Job, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "a-run")
    study = store.directory / STUDY
    study.symlink_to("nowhere")
    companions = ("-journal", "-shm", "-wal")
    for suffix in companions:
        Path(f"{study}{suffix}").write_text(suffix)
    said: list[str] = []
    with study_of(job, store, None, said.append):
        pass
    (note,) = said
    first, *others = sorted(store.directory.glob(f"{STUDY}.damaged-*"))
    assert first.is_symlink()
    assert f"kept as {first.name}," in note
    assert {p.name: p.read_text() for p in others} == {f"{first.name}{c}": c for c in companions}
    assert damage(study) == ""
    assert study.stat().st_size > 0


def test_a_value_that_was_torn_on_a_sound_page_is_damage(job: Job, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "a-run")
    with study_of(job, store, None, lambda _: None):
        pass
    study = store.directory / STUDY
    assert damage(study) == ""
    with closing(sqlite3.connect(study)) as opened:
        opened.execute("UPDATE study_user_attributes SET value_json = '{'")
        opened.commit()
        assert opened.total_changes > 0
    assert "Expecting" in damage(study)


def test_a_run_whose_study_is_elsewhere_leaves_its_own_file_alone(job: Job, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "a-run")
    (store.directory / STUDY).write_bytes(b"garbage" * 500)
    said: list[str] = []
    with study_of(job, store, f"sqlite:///{tmp_path / 'other.db'}", said.append):
        pass
    assert said == []
    assert (store.directory / STUDY).read_bytes() == b"garbage" * 500
    assert damage(tmp_path / "other.db") == ""
    assert (tmp_path / "other.db").stat().st_size > 0


class Record:
    """Stands in for a study, and fails to close as often as it is told to."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.closed = error, 0
        self.reconnection = Reconnection("sqlite://", lambda _: None)

    def close_to_workers(self) -> None:
        self.closed += 1
        if self.error:
            raise self.error


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("broken", [True, False])
def test_workers_are_told_however_a_search_ends_and_a_failure_is_no_second_error(
    fails: bool, broken: bool
) -> None:
    error = StorageInternalError("An exception is raised during the commit.")
    error.__cause__ = OperationalError("UPDATE", {}, Exception("disk is full"))
    record, said = Record(error if fails else None), list[str]()
    try:
        with closed_to_workers(cast("Any", record), said.append):
            if broken:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert broken
    assert record.closed == 1
    assert [s.count("disk is full") + s.count("\n") for s in said] == ([1] if fails else [])
