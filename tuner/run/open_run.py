"""The directory and the study of a new or resumed run."""

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

_FROM_STORAGE = (
    "{run} used the storage {storage}, which tune no longer supports: it resumes from its "
    "trials.jsonl with a new study.db; use --on ray to measure on other GPUs"
)


@dataclass(frozen=True)
class OpenRun:
    """A run in progress: its manifest and its search."""

    manifest: Manifest
    searcher: Searcher


@contextmanager
def open_store(
    job: Job,
    programs: ProgramFacts,
    request: Request,
    run_id: str,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[RunStore, Manifest]]:
    """Creates the directory of a run, or opens the directory of the run to resume; locks it.

    Adds the run to the user's list of runs that began here; ``note`` receives a sentence where the
    list cannot be written.

    Raises:
        SpecError: The run to resume had another spec, machine or version, or is being written.
    """
    now = manifest_of(job, programs, request, run_id)
    if request.resume is None:
        store = RunStore.create(request.output, run_id)
        store.write_manifest(now.to_json())
    else:
        store = RunStore(request.resume)
    with store.locked():
        manifest = store.manifest()
        if request.resume is not None:
            if (storage := manifest.choices.storage) is not None:
                note(_FROM_STORAGE.format(run=store.run_id, storage=storage))
            manifest.refuse_if_different(now)
            # The next `--resume` restores these choices.
            manifest = replace(manifest, choices=now.choices, spec_path=now.spec_path)
            store.write_manifest(manifest.to_json())
        specs = {named_spec(manifest): manifest.spec_sha256}
        if failed := BegunRuns(request.state).remember(store.directory, specs):
            note(failed)
        yield store, manifest


@contextmanager
def open_run(
    job: Job,
    store: RunStore,
    manifest: Manifest,
    request: Request,
    book: TimeBook,
    note: Callable[[str], None] = lambda _: None,
    cores: Cores | None = None,
) -> Iterator[OpenRun]:
    """Begins or resumes a run in its locked directory.

    Args:
        job: The job over the configs as the server completes them.
        manifest: As `open_store` yields it.
        book: Gets the seconds that the earlier part of the run spent.
        note: Receives sentences about repaired files.
        cores: The CPUs of server and load generator.

    Raises:
        SpecError: The earlier part of the run was measured in another way, or its trials were
            edited.
    """
    manifest = resumed_manifest(store, manifest, job, cores)
    if request.resume is not None:
        repair_run(store, note)
    history = trusted_trials(store, job.space)
    book.carry(spent_before(history, store))
    with study_of(job, store, note) as record:
        strategy = STRATEGIES[job.spec.search.strategy](job.space, job.spec)
        several = manifest.choices.on is not None
        searcher = Searcher(
            job.space,
            strategy,
            history,
            record,
            store.append_trial,
            first=job.first,
            several=several,
        )
        yield OpenRun(manifest, searcher)
