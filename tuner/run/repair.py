"""Repairs what a kill or a power failure left incomplete, before a run continues."""

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

#: Suffixes of a SQLite database's files. SQLite would apply leftovers to a new database.
_COMPANIONS = ("", "-journal", "-wal", "-shm")
#: The values that Optuna reads as JSON.
_VALUES = (
    "SELECT value_json FROM study_user_attributes"
    " UNION ALL SELECT value_json FROM trial_user_attributes"
    " UNION ALL SELECT distribution_json FROM trial_params"
)


def undo_half_writes(repository: Path, *, write: bool) -> Iterator[str]:
    """Undoes an incomplete write to the repository, and yields notes about it.

    Call it before configs are read: a run must not measure a mix of old and new configs.

    Raises:
        StalePlanError: A file was changed after the incomplete write.
        EnvironmentNotReadyError: There is an incomplete write, and the run may not write (``write``
            is false), or cannot.
    """
    if not write and (half := half_written(repository)) is not None:
        raise half
    repaired = repair(repository) if write else None
    yield from () if repaired is None else repaired.all_notes


def end_of_a_write(
    store: RunStore, request: Request, spec: Spec, note: Callable[[str], None]
) -> Result | None:
    """The result of a resumed run whose winner is in the repository already; else None.

    A write of the run that has no record in its result was interrupted, and is undone.

    Raises:
        SpecError: Another process is writing the run.
    """
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
    """Removes the result of a run that continues, and the rows of an incomplete round.

    ``note`` receives a sentence about each file with an incomplete last line.
    """
    for torn in store.torn():
        note(torn)
    store.cut_confirmation(count_of_full_rounds(store.confirmation()))
    (store.directory / RESULT).unlink(missing_ok=True)


def study_of(job: Job, store: RunStore, note: Callable[[str], None]) -> StudyRecord:
    """Opens the run's study.

    Renames a damaged file; ``note`` receives a sentence about it.

    Raises:
        EnvironmentNotReadyError: The file cannot be opened.
        SpecError: The study belongs to another space or objective.
    """
    spec, path = job.spec, store.directory / STUDY
    if why := damage(path):
        aside = _moved_aside(path)
        note(f"{path} is damaged ({why}): kept as {aside.name}, rebuilt from trials.jsonl")
    return StudyRecord(path, spec.name, store.run_id, job.space, spec.objective)


def damage(path: Path) -> str:
    """What is wrong with a SQLite file; empty if it is valid, in use, or missing."""
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
            if not all(pages.values()):  # reading such a table might never end
                return "it has views, triggers or virtual tables"
            for (value,) in database.execute(_VALUES):  # a value may be damaged on a valid page
                json.loads(value)
    except sqlite3.OperationalError:
        return ""  # locked or not readable: opening it reports the error
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
    """Restores the configs of the remote server of a killed run; returns its models and address.

    Raises:
        SpecError: The server is not certain, or the run is still in progress.
        EnvironmentNotReadyError: The configs cannot be restored.
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
                pass  # leaving the context restores the initial configs
    return f"{listed(files)} at {job.spec.server.grpc}"
