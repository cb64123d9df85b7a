"""A run's directory and study, new or resumed."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.bench.timebook import TimeBook
from tuner.confirm.stored import finished_rows
from tuner.measurement.measurement import Stage
from tuner.run.manifest import Manifest
from tuner.run.store import RESULT, STUDY, RunStore
from tuner.score.trial import Trial, TrialTime
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.study.offer import Offer
from tuner.search.study.record import StudyRecord
from tuner.steps.job import Job, Request
from tuner.steps.manifest import choices_of, manifest_of, with_completed
from tuner.steps.tools import Programs

#: SQLite's own files beside a database: their content would be applied to the new one.
_COMPANIONS = ("", "-journal", "-wal", "-shm")
#: What Optuna reads as JSON.
_VALUES = (
    "SELECT value_json FROM study_user_attributes"
    " UNION ALL SELECT value_json FROM trial_user_attributes"
    " UNION ALL SELECT distribution_json FROM trial_params"
)


@dataclass(frozen=True)
class OpenRun:
    """A run that is being written."""

    store: RunStore
    manifest: Manifest
    searcher: Searcher


@contextmanager
def open_store(job: Job, programs: Programs, request: Request, run_id: str) -> Iterator[RunStore]:
    """Creates the run's directory, or opens that of an earlier one, and keeps it locked.

    Raises:
        SpecError: There is no such run to resume, or it was made with something else.
    """
    store = _store(job, programs, request, run_id)
    with store.locked():
        if request.resume is not None:
            manifest = store.manifest()
            manifest.refuse_if_different(manifest_of(job, programs, request, store.run_id))
            choices = replace(choices_of(request), directory=manifest.choices.directory)
            if choices != manifest.choices:  # whoever resumes the run after this gets them
                store.write_manifest(replace(manifest, choices=choices).to_json())
        yield store


@contextmanager
def open_run(
    job: Job,
    store: RunStore,
    request: Request,
    book: TimeBook,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[OpenRun]:
    """Begins or resumes the run, and lets workers join it.

    The job is the one over the config as the server completes it, and the store is locked. The book
    gets what an earlier part of the run spent.

    Raises:
        SpecError: The server completes the config differently than when the run was started.
    """
    before = store.manifest()
    manifest = with_completed(before, job)
    before.refuse_if_completed_otherwise(manifest)
    before.refuse_if_measured_otherwise(manifest)
    if not store.trials():
        store.write_manifest(manifest.to_json())
    if request.resume is not None:
        store.cut_confirmation(finished_rows(store.confirmation()))
        (store.directory / RESULT).unlink(missing_ok=True)
    history = store.trials()
    book.carry(_carried(history, store))
    record = study_of(job, store, request.storage, note)

    def keep(trial: Trial) -> None:
        store.append_trial(trial)
        if (by := trial.worker) is not None:
            state = trial.state.value
            note(f"trial {trial.number} is a worker's: {by.host}, GPUs {by.gpus}, {state}")

    with record:
        strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
        searcher = Searcher(job.space, strategy, history, record, keep, note)
        directory = job.loaded.path.parent.absolute()
        record.open_to_workers(Offer(manifest, directory, job.spec.budget.trials).to_json())
        with closed_to_workers(record, note):
            yield OpenRun(store, manifest, searcher)


def _store(job: Job, programs: Programs, request: Request, run_id: str) -> RunStore:
    """The directory of the run, with its manifest."""
    if request.resume is not None:
        return RunStore.open(request.resume)
    store = RunStore.create(request.output, run_id)
    store.write_manifest(manifest_of(job, programs, request, store.run_id).to_json())
    return store


def _carried(history: Sequence[Trial], store: RunStore) -> dict[str, float]:
    """Seconds an earlier part of the run spent: its trials and its confirmation.

    A worker's trials cost the run no time.
    """
    own = [t for t in history if t.worker is None]
    names = [f.name for f in fields(TrialTime) if f.name != "other_s"]
    carried = {name: sum(getattr(t.time, name) for t in own) for name in names}
    again_s = sum(r.wall_s for r in store.rejected() if r.stage is Stage.CONFIRMATION)
    again_s += sum(row.point.measurement.wall_s for row in store.confirmation())
    return {**carried, "measuring_s": carried["measuring_s"] + again_s}


def study_of(
    job: Job, store: RunStore, storage: str | None, note: Callable[[str], None]
) -> StudyRecord:
    """The study in ``storage``, a SQLAlchemy URL, else in the run's own file.

    A damaged file is moved aside, and ``note`` receives a sentence about it.

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
            if known[0] and found == (
                "ok",
            ):  # pages may fit together though a value on them was torn
                for (value,) in database.execute(_VALUES):
                    json.loads(value)
    except sqlite3.OperationalError:
        return ""  # locked, or not ours to open: opening it says so
    except (sqlite3.DatabaseError, ValueError) as error:
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
