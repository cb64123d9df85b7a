"""A damaged study is told from a sound one, and moved aside whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders.jobs import a_job

from tuner.prepare.job import Job
from tuner.record.store import STUDY, RunStore
from tuner.run.repair import damage, study_of


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
def test_damage_of_a_study_is_named(make: Callable[[Path], Any], said: str, tmp_path: Path) -> None:
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


def test_companion_files_of_a_damaged_study_move_with_it(job: Job, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "a-run")
    study = store.directory / STUDY
    study.symlink_to("nowhere")
    companions = ("-journal", "-shm", "-wal")
    for suffix in companions:
        Path(f"{study}{suffix}").write_text(suffix)
    said: list[str] = []
    with study_of(job, store, said.append):
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
    with study_of(job, store, lambda _: None):
        pass
    study = store.directory / STUDY
    assert damage(study) == ""
    with closing(sqlite3.connect(study)) as opened:
        opened.execute("UPDATE study_user_attributes SET value_json = '{'")
        opened.commit()
        assert opened.total_changes > 0
    assert "Expecting" in damage(study)
