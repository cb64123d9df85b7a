"""A run's directory and study: new, or resumed as it was begun."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import SpecError
from tuner.machine.cpus import Cores
from tuner.machine.host import Host
from tuner.measurement.measurement import Stage
from tuner.modelconfig.files import read_config
from tuner.prepare.job import Job, Request, prepare
from tuner.prepare.manifest import ProgramFacts, kept_configs, manifest_of, with_completed
from tuner.prepare.timebook import TimeBook
from tuner.record.manifest import Choices, Manifest
from tuner.record.noise import count_of_whole_rounds
from tuner.record.result_schema import Result
from tuner.record.store import RESULT, SERVER_LOG, STUDY, TRIALS, RunStore
from tuner.run.trust import BegunRuns, named_spec, refuse_unnamed, spec_of
from tuner.score.trial import Trial, TrialTime
from tuner.search.estimate import spent_s
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.study import StudyRecord
from tuner.spec.mistakes import listed
from tuner.spec.model import Spec
from tuner.triton.launchers import cores_of, server_launcher
from tuner.writeback.files import sha256_or_none
from tuner.writeback.repository import repair

#: SQLite's own files beside a database: their content would be applied to the new one.
_COMPANIONS = ("", "-journal", "-wal", "-shm")
#: What Optuna reads as JSON.
_VALUES = (
    "SELECT value_json FROM study_user_attributes"
    " UNION ALL SELECT value_json FROM trial_user_attributes"
    " UNION ALL SELECT distribution_json FROM trial_params"
)
_FROM_STORAGE = (
    "{run} met its workers in {storage}, which tune no longer uses: it goes on with its "
    "trials.jsonl and a study.db of its own; other GPUs measure for it with --on ray"
)


@dataclass(frozen=True)
class OpenRun:
    """A run that is being written."""

    store: RunStore
    manifest: Manifest
    searcher: Searcher


@contextmanager
def open_store(
    job: Job,
    programs: ProgramFacts,
    request: Request,
    run_id: str,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[RunStore]:
    """Creates the run's directory, or opens that of an earlier one, and keeps it locked.

    The run is listed as begun here; ``note`` receives a sentence where it could not be.

    Raises:
        SpecError: There is no such run to resume, or it was made with something else.
    """
    if request.resume is None:
        store = RunStore.create(request.output, run_id)
        store.write_manifest(manifest_of(job, programs, request, store.run_id).to_json())
    else:
        store = RunStore.open(request.resume)
    with store.locked():
        if request.resume is not None:
            manifest = store.manifest()
            if (storage := manifest.choices.storage) is not None:
                note(_FROM_STORAGE.format(run=store.run_id, storage=storage))
            now = manifest_of(job, programs, request, store.run_id)
            manifest.refuse_if_different(now)
            # Whoever resumes the run after this gets them.
            chosen = replace(manifest, choices=now.choices, spec_path=now.spec_path)
            store.write_manifest(chosen.to_json())
        manifest = store.manifest()
        specs = {named_spec(manifest): manifest.spec_sha256}
        if failed := BegunRuns(request.state).remember(store.directory, specs):
            note(failed)
        yield store


@contextmanager
def open_run(
    job: Job,
    store: RunStore,
    request: Request,
    book: TimeBook,
    note: Callable[[str], None] = lambda _: None,
    cores: Cores | None = None,
) -> Iterator[OpenRun]:
    """Begins or resumes the run.

    The job is the one over the config as the server completes it, and the store is locked. The book
    gets what an earlier part of the run spent.

    Raises:
        SpecError: The server completes the config differently than when the run was started.
    """
    before = store.manifest()
    manifest = replace(with_completed(before, job), cores=cores)
    before.refuse_if_completed_otherwise(manifest)
    before.refuse_if_measured_otherwise(manifest)
    if not store.trials():
        store.write_manifest(manifest.to_json())
    if request.resume is not None:
        for torn in store.torn():
            note(torn)
        store.cut_confirmation(count_of_whole_rounds(store.confirmation()))
        (store.directory / RESULT).unlink(missing_ok=True)
    history = store.trials()
    for trial in history:  # a config may choose code, and the spec says which there are
        if trial.candidate != job.space.current and not job.space.contains(trial.candidate):
            told = f"the config of trial {trial.number} is not in the space of the spec"
            raise SpecError(f"{store.directory / TRIALS}: {told}", "edited? start a new run")
    book.carry(_carried(history, store))
    with study_of(job, store, note) as record:
        strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
        several = manifest.choices.on is not None
        searcher = Searcher(
            job.space, strategy, history, record, store.append_trial, several=several
        )
        yield OpenRun(store, manifest, searcher)


def _carried(history: Sequence[Trial], store: RunStore) -> dict[str, float]:
    """Seconds an earlier part of the run spent: its trials and its proof.

    Trials that were measured side by side cost it less than they took.
    """
    share = spent_s(history) / (sum(t.time.total_s for t in history) or 1.0)
    names = [f.name for f in fields(TrialTime) if f.name != "other_s"]
    carried = {name: share * sum(getattr(t.time, name) for t in history) for name in names}
    again_s = sum(r.wall_s for r in store.rejected() if r.stage is Stage.CONFIRMATION)
    again_s += sum(row.point.measurement.wall_s for row in store.confirmation())
    return {**carried, "measuring_s": carried["measuring_s"] + again_s}


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


def restore_choices(request: Request) -> Request:
    """The request completed with the options of the run to resume; options given again override.

    A run that was not to write the repository never does.

    Raises:
        SpecError: It is not a run, another seed is given, or what may choose code or a place is
            not given again.
    """
    if request.resume is None:
        return request
    manifest = RunStore.open(request.resume).manifest()
    nameless = request.resume.name in ("", "..")
    return replace(
        with_choices(request, request.resume, [request.spec], manifest.choices, manifest.seed),
        resume=request.resume.resolve() if nameless else request.resume,
        output=request.resume.absolute().parent,
    )


def with_choices(
    request: Request, run: Path, specs: Sequence[Path], earlier: Choices, seed: int | None
) -> Request:
    """What was chosen earlier for ``run``, unless it is given again; raises SpecError as above."""
    name = run.resolve().name
    if request.seed not in (None, seed):
        raise SpecError(
            f"{name} searches with seed {seed}, not {request.seed}: another "
            "seed makes another experiment",
            "leave --seed out, or start a new run",
        )
    if earlier.overrides and not request.overrides:
        refuse_unnamed(f"{name} was started with --set", run, specs, earlier)
    time_s = request.time_budget_s
    return replace(
        request,
        trials=earlier.trials if request.trials is None else request.trials,
        time_budget_s=earlier.time_budget_s if time_s is None else time_s,
        seed=seed,
        write=request.write and earlier.write,
        accept_unsoaked=request.accept_unsoaked or earlier.accept_unsoaked,
        on=request.on or earlier.on,
        benches=request.benches or earlier.benches,
    )


def refuse_another_start(run: Path, job: Job, host: Host | None) -> None:
    """Refuses, before any program is started, where a run's spec, configs or machine changed.

    ``host``: None where it is measured elsewhere.
    """
    before, machine = RunStore.open(run).manifest(), ""
    if host is not None:
        machine = host.fingerprint(before.versions.get("tritonserver", ""), cores_of(job.spec))
    now = replace(
        before,
        spec_path=str(job.loaded.path),
        choices=replace(before.choices, directory=str(Path.cwd())),
        spec_sha256=job.loaded.sha256,
        models=kept_configs(job),
        fingerprint=machine or before.fingerprint,
    )
    before.refuse_if_different(now)


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
        result = store.whole_result()
        if result is None or result.written is None:
            repaired = repair(spec.repository, unrecorded=store.run_id)
            for undone in () if repaired is None else repaired.all_notes:
                note(undone)
            return None
    paths = (spec.repository / model.name / spec.write_to for model in manifest.models.values())
    written = {file.sha256_after for file in result.written.files}
    return result if any(sha256_or_none(read_config(path)) in written for path in paths) else None
