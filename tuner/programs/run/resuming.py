"""Resuming a run as it was begun: its directory keeps what the command line said."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tuner.confirm.stored import ResumedBench
from tuner.errors import SpecError
from tuner.machine.host import Host
from tuner.run.manifest import Choices
from tuner.run.result_schema import Result
from tuner.run.store import MANIFEST, RunStore
from tuner.spec.model import Spec
from tuner.steps.job import Job, Request
from tuner.steps.manifest import kept_configs
from tuner.steps.session import Session
from tuner.triton.launchers import cores_of
from tuner.writeback.journal import is_written_by
from tuner.writeback.rollback import rollback


def spec_of(run: Path) -> Path:
    """The spec that a run was started with, at the path it had then.

    Raises:
        SpecError: It is not a run, its spec has moved, or somebody else may have chosen that.
    """
    manifest = RunStore.open(run).manifest()
    path = Path(manifest.choices.directory) / manifest.spec_path
    if not path.is_file():
        raise SpecError(
            f"the spec of {manifest.run_id} is no longer at {path}",
            f"name it where it lies now: tune run SPEC --resume {run} (its text is kept in the "
            "run's manifest.json as spec_text)",
        )
    if where := untrusted(path, run / MANIFEST):
        again = shlex.join(["tune", "run", str(path), "--resume", str(run)])
        raise SpecError(
            f"the spec {path} is {where}, and resuming starts what a spec names",
            f"look at it with `tune plan`, then name it: {again}",
        )
    return path


def untrusted(spec: Path, kept: Path) -> str:
    """Why somebody else may have chosen the spec that the file ``kept`` names; else empty."""
    if kept.stat().st_uid not in (os.geteuid(), 0):
        return "named by a run of another user"
    inside = spec.resolve().is_relative_to(kept.parent.resolve())
    return "in the run's own directory" if inside else ""


def restore_choices(request: Request) -> Request:
    """The request completed with the options of the run to resume; options given again override.

    A run that was not to write the repository never does.

    Raises:
        SpecError: It is not a run, another seed is given, or the password of its storage is
            needed, which is not kept.
    """
    if request.resume is None:
        return request
    manifest = RunStore.open(request.resume).manifest()
    nameless = request.resume.name in ("", "..")
    return replace(
        with_choices(request, manifest.run_id, manifest.choices, manifest.seed),
        resume=request.resume.resolve() if nameless else request.resume,
        output=request.resume.absolute().parent,
    )


def with_choices(request: Request, name: str, earlier: Choices, seed: int | None) -> Request:
    """What was chosen earlier for ``name``, unless it is given again; raises SpecError as above."""
    if request.seed not in (None, seed):
        raise SpecError(
            f"{name} searches with seed {seed}, not {request.seed}: another "
            "seed makes another experiment",
            "leave --seed out, or start a new run",
        )
    if request.storage is None and earlier.lacks_a_password:
        raise SpecError(
            f"the storage {earlier.storage} of {name} needs its password, which is not kept",
            "give the whole URL again, in $TUNE_STORAGE or with --storage",
        )
    time_s = request.time_budget_s
    return replace(
        request,
        trials=earlier.trials if request.trials is None else request.trials,
        time_budget_s=earlier.time_budget_s if time_s is None else time_s,
        seed=seed,
        write=request.write and earlier.write,
        accept_unsoaked=request.accept_unsoaked or earlier.accept_unsoaked,
        storage=request.storage or earlier.storage,
        overrides=request.overrides or earlier.overrides,
    )


def refuse_another_start(run: Path, job: Job, host: Host) -> None:
    """SpecError, before any program is started, where a run's spec, configs or machine changed."""
    before = RunStore.open(run).manifest()
    machine = host.fingerprint(before.versions.get("tritonserver", ""), cores_of(job.spec))
    now = replace(
        before, spec_sha256=job.loaded.sha256, models=kept_configs(job), fingerprint=machine
    )
    before.refuse_if_different(now)


def end_of_a_write(request: Request, spec: Spec, note: Callable[[str], None]) -> Result | None:
    """The result of a run to resume whose winner is in the repository: nothing is left to measure.

    A kill may have come between the write and its record. Such a write is taken back, and the run
    goes on with the config that it measured.

    Raises:
        SpecError: The run is being written.
    """
    if request.resume is None or not request.write:
        return None
    store = RunStore.open(request.resume)
    manifest, stored = store.manifest(), store.whole_result()
    models = [model.name for model in manifest.models.values()]
    repository = spec.repository
    own = [m for m in models if is_written_by(store.run_id, repository / m / spec.write_to)]
    longer = manifest.choices.trials, manifest.choices.time_budget_s
    if not own or longer != (request.trials, request.time_budget_s):
        return None
    if stored is not None and stored["written"] is not None:
        note("the winner was written before; only the reports are made again")
        return Result.from_json(stored)
    with store.locked():
        rollback(repository, own[0], run_id=store.run_id)
    note("the run was killed when it had just written its winner, which is taken back for now")
    return None


def resume_confirmation(session: Session, store: RunStore) -> Session:
    """The session with the rounds that an earlier part of the run has finished."""
    stored = store.confirmation()
    if not stored:
        return session
    session.events.note(f"going on with its confirmation: {len(stored)} measurements are kept")
    bench = ResumedBench(session.bench, stored, session.record, store.cut_confirmation)
    return replace(session, bench=bench, record=bench.record)
