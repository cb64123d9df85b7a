"""A run's directory and study: new, or resumed as it was begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tuner.machine.cpus import Cores
from tuner.prepare.job import Job, Request
from tuner.prepare.manifest import ProgramFacts, manifest_of
from tuner.prepare.timebook import TimeBook
from tuner.record.manifest import Manifest
from tuner.record.store import RunStore
from tuner.run.repair import repair_run, study_of
from tuner.run.resume import resumed_manifest, spent_before
from tuner.run.trust import BegunRuns, named_spec, trusted_trials
from tuner.search.searcher import Searcher
from tuner.search.strategies.registry import STRATEGIES
from tuner.space.analyzer_results import first_configs

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
        SpecError: An earlier part of the run was measured otherwise, or its trials were edited.
    """
    manifest = resumed_manifest(store, job, cores)
    if request.resume is not None:
        repair_run(store, note)
    history = trusted_trials(store, job.space)
    book.carry(spent_before(history, store))
    with study_of(job, store, note) as record:
        strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
        several = manifest.choices.on is not None
        given = job.spec.search.first
        first = () if given is None else first_configs(given, job.space).candidates
        searcher = Searcher(
            job.space, strategy, history, record, store.append_trial, first=first, several=several
        )
        yield OpenRun(store, manifest, searcher)
