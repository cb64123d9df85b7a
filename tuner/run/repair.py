"""What a kill or a power cut left half done, put right before a run goes on."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from tuner.modelconfig.files import read_config
from tuner.prepare.job import Job, Request, prepare
from tuner.record.noise import count_of_full_rounds
from tuner.record.result_schema import Result
from tuner.record.store import RESULT, SERVER_LOG, STUDY, RunStore
from tuner.run.trust import BegunRuns, refuse_unnamed, spec_of
from tuner.search.study import StudyRecord
from tuner.spec.mistakes import listed
from tuner.spec.model import Spec
from tuner.triton.launchers import server_launcher
from tuner.writeback.files import sha256_or_none
from tuner.writeback.repository import half_written, repair

#: SQLite's own files beside a database: their content would be applied to the new one.
_COMPANIONS = ("", "-journal", "-wal", "-shm")
#: What Optuna reads as JSON.
_VALUES = (
    "SELECT value_json FROM study_user_attributes"
    " UNION ALL SELECT value_json FROM trial_user_attributes"
    " UNION ALL SELECT distribution_json FROM trial_params"
)


def undo_half_writes(repository: Path, *, write: bool) -> Iterator[str]:
    """Notes on a write that a kill cut short, which is undone; refused without ``write``.

    Called before any config is read: a run over a half-written winner would measure a config that
    nobody chose.

    Raises:
        StalePlanError: A file was changed since.
        EnvironmentNotReadyError: There is half a write, and the run is not to write, or cannot.
    """
    if not write and (half := half_written(repository)) is not None:
        raise half
    repaired = repair(repository) if write else None
    yield from () if repaired is None else repaired.all_notes


def end_of_a_write(
    run: Path, request: Request, spec: Spec, note: Callable[[str], None]
) -> Result | None:
    """The result of a run to resume whose winner is in the repository: nothing is left to measure.

    What it wrote without a record of it was cut short too, and is undone: the run goes on with the
    config that it measured.

    Raises:
        SpecError: The run is being written.
    """
    store = RunStore.open(run)
    manifest = store.manifest()
    longer = manifest.choices.trials, manifest.choices.time_budget_s
    if not request.write or longer != (request.trials, request.time_budget_s):
        return None
    with store.locked():
        result = store.full_result()
        if result is None or result.written is None:
            repaired = repair(spec.repository, unrecorded=store.run_id)
            for undone in () if repaired is None else repaired.all_notes:
                note(undone)
            return None
    paths = (spec.repository / model.name / spec.write_to for model in manifest.models.values())
    written = {file.sha256_after for file in result.written.files}
    return result if any(sha256_or_none(read_config(path)) in written for path in paths) else None


def repair_run(store: RunStore, note: Callable[[str], None]) -> None:
    """Takes from a run that goes on its earlier end, and what an interrupted round left.

    ``note`` receives a sentence about each file that was cut short.
    """
    for torn in store.torn():
        note(torn)
    store.cut_confirmation(count_of_full_rounds(store.confirmation()))
    (store.directory / RESULT).unlink(missing_ok=True)


def study_of(job: Job, store: RunStore, note: Callable[[str], None]) -> StudyRecord:
    """The study in the run's own file.

    A damaged file is moved aside, and ``note`` receives a sentence about it.

    Raises:
        EnvironmentNotReadyError: It cannot be opened.
        SpecError: The study belongs to another space or objective.
    """
    spec, path = job.spec, store.directory / STUDY
    if why := damage(path):
        aside = _moved_aside(path)
        note(f"{path} is damaged ({why}): kept as {aside.name}, rebuilt from trials.jsonl")
    return StudyRecord(path, spec.name, store.run_id, job.space, spec.objective)


def damage(path: Path) -> str:
    """What is wrong with a SQLite file; empty where it is sound, in use, or not there."""
    for name in (f"{path}{suffix}" for suffix in _COMPANIONS):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(name).st_mode):
                return "not a file"
    if not path.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                return "its pages do not fit together"
            pages = dict(database.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
            if pages and "studies" not in pages:
                return "another program's database"
            if not all(pages.values()):  # reading one may run for ever
                return "it has views, triggers or virtual tables"
            for (value,) in database.execute(_VALUES):  # one may be torn on pages that fit
                json.loads(value)
    except sqlite3.OperationalError:
        return ""  # locked, or not ours to open: opening it says so
    except (sqlite3.DatabaseError, ValueError) as error:
        return str(error)
    return ""


def _moved_aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in _COMPANIONS:
        old = Path(f"{path}{suffix}")
        if os.path.lexists(old):
            old.rename(f"{aside}{suffix}")
    return aside


def put_back(run: Path, begun: BegunRuns, environment: Mapping[str, str], *, dry_run: bool) -> str:
    """Puts back the remote server of a run that was killed; returns its models and address.

    Raises:
        SpecError: It is not certain which server that is, or the run goes on.
        EnvironmentNotReadyError: It cannot be put back.
    """
    store, path = RunStore.open(run), spec_of(run, begun)
    manifest, job = store.manifest(), prepare(Request(spec=path))
    if job.loaded.sha256 != manifest.spec_sha256:
        why = f"{path} is not the spec of the run any more, or the run was given --set"
        refuse_unnamed(why, run, [path], manifest.choices)
    files = {model.name: model.base.file for model in job.served.models.values()}
    with store.locked(), server_launcher(job.spec, files, environment) as launcher:
        if not dry_run:
            with launcher.launch((), store.logs / SERVER_LOG):
                pass  # leaving it puts back what was found
    return f"{listed(files)} at {job.spec.server.grpc}"
