"""The study of a run, which is a record: where it is damaged it is rebuilt from the trials."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tuner.run.store import STUDY, RunStore
from tuner.search.study.record import StudyRecord
from tuner.steps.job import Job

#: SQLite's own files beside a database: their content would be applied to the new one.
_COMPANIONS = ("", "-journal", "-wal", "-shm")


def study_of(
    job: Job, store: RunStore, storage: str | None, note: Callable[[str], None]
) -> StudyRecord:
    """The study in ``storage``, else in the run's own file.

    Args:
        job: What is tuned.
        store: The run's directory, locked.
        storage: SQLAlchemy URL of a storage that is not the run's own.
        note: Receives a sentence when a damaged file was moved aside.

    Raises:
        EnvironmentNotReadyError: The storage cannot be opened.
        SpecError: The study belongs to another space or objective.
    """
    spec, path = job.spec, store.directory / STUDY
    if storage is None and (why := damage(path)):
        aside = _moved_aside(path)
        note(f"{path} is damaged ({why}): kept as {aside.name}, rebuilt from trials.jsonl")
    url = storage or f"sqlite:///{path}"
    return StudyRecord(url, spec.name, store.run_id, job.space, spec.objective)


@contextmanager
def closed_to_workers(record: StudyRecord, note: Callable[[str], None]) -> Iterator[None]:
    """Tells workers afterwards that the search is over; failing to do so does not end the run."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    finally:
        try:
            record.close_to_workers()
        except (SQLAlchemyError, OptunaError) as error:
            note(f"workers could not be told that the search is over: {str(error).splitlines()[0]}")


def damage(path: Path) -> str:
    """What is wrong with a SQLite file; empty where it is sound, in use, or not there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return ""
    if not stat.S_ISREG(mode):
        return "not a file"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            found = database.execute("PRAGMA quick_check(1)").fetchone()
            studies = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            known = database.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'studies'"
            ).fetchone()
    except sqlite3.OperationalError:
        return ""  # locked, or not ours to open: opening it says so
    except sqlite3.DatabaseError as error:
        return str(error)
    if found is None or found[0] != "ok":
        return "its pages do not fit together"
    return "another program's database" if studies[0] and not known[0] else ""


def _moved_aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in _COMPANIONS:
        old = Path(f"{path}{suffix}")
        if os.path.lexists(old):
            old.rename(f"{aside}{suffix}")
    return aside
