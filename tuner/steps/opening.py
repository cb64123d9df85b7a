"""A run's directory and study, new or resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.bench.timebook import TimeBook
from tuner.confirm.resumed import finished_rows
from tuner.load import seeds
from tuner.machine.host import Host
from tuner.measurement.rejected import Stage
from tuner.modelconfig.message import to_text
from tuner.run.manifest import KeptConfig, Manifest
from tuner.run.store import RESULT, RunStore
from tuner.score.trial import Trial, TrialTime
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.search.study.offer import Offer
from tuner.steps.job import Job, Request
from tuner.steps.resuming import choices_of
from tuner.steps.studies import closed_to_workers, study_of
from tuner.steps.tools import Programs
from tuner.steps.traffic import client_of
from tuner.triton.launchers import cores_of


@dataclass(frozen=True)
class OpenRun:
    """A run that is being written."""

    store: RunStore
    manifest: Manifest
    searcher: Searcher


def refuse_another_start(run: Path, job: Job, host: Host) -> None:
    """SpecError, before any program is started, where a run's spec, configs or machine changed."""
    before = RunStore.open(run).manifest()
    machine = host.fingerprint(before.versions.get("tritonserver", ""), cores_of(job.spec))
    now = replace(before, spec_sha256=job.loaded.sha256, models=_kept(job), fingerprint=machine)
    before.refuse_if_different(now)


@contextmanager
def open_store(job: Job, programs: Programs, request: Request, run_id: str) -> Iterator[RunStore]:
    """Creates the run's directory, or opens that of an earlier one, and keeps it locked.

    Args:
        job: What is tuned, as far as it is known before a server was asked.
        programs: Of this machine.
        request: Names the run to go on with.
        run_id: Of a new run.

    Raises:
        SpecError: There is no such run to resume, or it was made with something else.
    """
    store = _store(job, programs, request, run_id)
    with store.locked():
        if request.resume is not None:
            manifest = store.manifest()
            manifest.refuse_if_different(manifest_of(job, programs, request, store.run_id))
            _rechosen(store, manifest, request)
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

    Args:
        job: What is tuned, over the config as the server completes it.
        store: The run's, locked.
        request: Says whether it is an earlier run, and names the storage of the study.
        book: Gets what an earlier part of the run spent.
        note: Receives a sentence about each trial that is taken over from a worker.

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
        if trial.worker is not None:
            note(f"trial {trial.number} is a worker's: {_by(trial)}")

    with record:
        strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
        searcher = Searcher(job.space, strategy, history, record, keep, note)
        directory = job.loaded.path.parent.absolute()
        record.open_to_workers(Offer(manifest, directory, job.spec.budget.trials).to_json())
        with closed_to_workers(record, note):
            yield OpenRun(store, manifest, searcher)


def _rechosen(store: RunStore, manifest: Manifest, request: Request) -> None:
    """Stores the options given on this resume, for the next one."""
    choices = replace(choices_of(request), directory=manifest.choices.directory)
    if choices != manifest.choices:
        store.write_manifest(replace(manifest, choices=choices).to_json())


def _by(trial: Trial) -> str:
    assert trial.worker is not None
    return f"{trial.worker.host}, GPUs {trial.worker.gpus}, {trial.state.value}"


def _store(job: Job, programs: Programs, request: Request, run_id: str) -> RunStore:
    """The directory of the run, with its manifest."""
    if request.resume is not None:
        return RunStore.open(request.resume)
    store = RunStore.create(request.output, run_id)
    store.write_manifest(manifest_of(job, programs, request, store.run_id).to_json())
    return store


def manifest_of(job: Job, programs: Programs, request: Request, run_id: str) -> Manifest:
    host = programs.host.to_json()
    gpus = host.pop("gpus")
    return Manifest(
        run_id=run_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        spec_path=str(job.loaded.path),
        spec_text=job.loaded.text,
        spec_sha256=job.loaded.sha256,
        spec=job.spec.plain(),
        name=job.spec.name,
        seed=job.spec.search.seed,
        models=_kept(job),
        streams={name: stream.model for name, stream in job.spec.streams.items()},
        versions=programs.versions(),
        host=host,
        gpus=gpus,
        fingerprint=programs.fingerprint(),
        command=list(request.command),
        space_size=job.space.size().count,
        current=job.space.current,
        choices=choices_of(request),
        arrivals=seeds.of_confirmation(run_id),
    )


def _kept(job: Job) -> dict[str, KeptConfig]:
    return {
        label: KeptConfig(
            *(m.name, str(m.files.path), m.files.text, m.files.file_sha256, m.files.encoding),
            parts=m.parts,
        )
        for label, m in job.served.models.items()
    }


def with_completed(manifest: Manifest, job: Job) -> Manifest:
    """Adds what the server makes of the configs, and the space over that."""
    bases = {label: model.base for label, model in job.served.models.items()}
    models = {
        label: replace(
            kept,
            completed=to_text(bases[label].completed),
            overridden=tuple(sorted(bases[label].overridden)),
        )
        for label, kept in _kept(job).items()
    }
    return replace(
        manifest,
        space_size=job.space.size().count,
        current=job.space.current,
        models=models,
        client=client_of(job).kind.name,
    )


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
