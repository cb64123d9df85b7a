"""A run on several benches: the part in the process of the run, which measures nothing itself.

Identify ─> the run's manifest ─> GetReady ─> trials, rounds, and calls of the first bench
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tuner.errors import SpecError
from tuner.extras import Extra, lacking
from tuner.fleet import BenchPlace, Fleet, Need
from tuner.fleet_on_ray import ray_fleet
from tuner.machine.stop import Stop
from tuner.measurement.measurement import Rejected
from tuner.meter.benches import Benches, FirstBench, Terms
from tuner.meter.session import Session, stored_in
from tuner.modelconfig import content
from tuner.prepare.job import Job, Request
from tuner.prepare.timebook import TimeBook
from tuner.progress.events import Events
from tuner.record.manifest import Manifest
from tuner.record.store import RunStore
from tuner.run.bench_side import (
    BenchRequest,
    GetReady,
    Identify,
    SeenPrograms,
    SeenServer,
    measuring,
)
from tuner.run.ready import Ready, first_notes
from tuner.space.build import refuse_empty
from tuner.spec.files import files_of
from tuner.spec.model import Spec
from tuner.spec.units import count_text


def note_on_niceness(name: str, place: BenchPlace) -> Iterator[str]:
    """Notes a bench that runs behind the other processes of its machine."""
    if place.niceness > os.getpriority(os.PRIO_PROCESS, 0):
        yield (
            f"{name}: {place.host} runs it at nice {place.niceness}, behind its other processes: "
            "start Ray there with RAY_worker_niceness=0"
        )


def refuse_misfits_for_benches(name: str, spec: Spec) -> None:
    """Raises SpecError for a spec that cannot be measured on benches with separate CPUs."""
    if not spec.server.managed:
        raise SpecError(
            f"{name}: tune does not start this server (server.mode: remote)",
            "--on ray starts a separate server for each bench: use mode local or docker",
        )
    if isinstance(spec.server.cpus, tuple) is not isinstance(spec.workload.cpus, tuple):
        raise SpecError(
            f"{name}: only one of server.cpus and workload.cpus names CPUs",
            "with --on ray set both, or neither: then each bench gets a share of the CPUs",
        )


def need_of(fleet: Fleet, spec: Spec, beside: int | None = None) -> Need:
    """The GPUs and CPUs that a spec needs; one GPU, if there is any, unless the spec says."""
    gpus = spec.server.gpus
    count = None if gpus == "all" else 0 if gpus == "none" else len(gpus)
    server, load = spec.server.cpus, spec.workload.cpus
    if isinstance(server, tuple) and isinstance(load, tuple):
        return fleet.need(count, sorted({*server, *load}), beside)
    return fleet.need(count, beside=beside)


class OnBenches:
    """The benches of a run. The first is opened first, and the others must be like it."""

    def __init__(
        self,
        fleet: Fleet,
        job: Job,
        request: Request,
        run: Path,
        book: TimeBook,
        events: Events,
        stop: Stop,
        checkpoint: Callable[[], None],
    ) -> None:
        self._job, self._request, self._store = job, request, RunStore(run)
        self._book, self._events, self._checkpoint = book, events, checkpoint
        absolute = replace(request, spec=request.spec.absolute(), output=request.output.absolute())
        given = BenchRequest(absolute, job.loaded.sha256)

        def opens(bench: str, need: Need) -> None:
            fleet.open(bench, measuring, given, need)

        need = replace(need_of(fleet, job.spec, request.benches), moves=False)
        room = fleet.room(need)
        self._count = min(request.benches or room, room)
        if request.benches is not None and room < request.benches:
            events.note(f"there is room for {count_text(room, 'bench')} side by side")
        terms = Terms(run.absolute())
        self._benches = Benches(fleet, opens, need, terms, events.note, lambda: stop.requested)

    def hear(self, bench: str, what: object) -> None:
        """Handles a message that a bench sends at once."""
        if isinstance(what, BenchPlace):
            self._benches.places[bench] = what
            self._events.note(f"{bench} is on {what}")
            for note in note_on_niceness(bench, what):
                self._events.note(note)
        elif isinstance(what, Rejected):
            self._store.append_rejected(what)
        else:
            self._events.note(f"{bench}: {what}")

    @contextmanager
    def programs(self) -> Iterator[SeenPrograms]:
        """The programs of the first bench."""
        self._events.step("waiting for the first bench")
        self._benches.open(ready=Identify())
        yield self._benches.first_answer()

    @contextmanager
    def serving(self, store: RunStore, manifest: Manifest) -> Iterator[Ready]:
        """Serves the current configs on the first bench."""
        del store
        job = self._job
        files = content.content_of(job.served, files_of(job.spec), self._events.note)
        self._benches.terms = replace(self._benches.terms, manifest=manifest, files=files)
        seen: SeenServer = self._benches.call(GetReady())
        job = replace(job, has_perf_analyzer=seen.has_perf_analyzer)
        models = job.served.models
        bases = {label: base.over(models[label].base) for label, base in seen.bases.items()}
        job = job.over(job.served.over(bases))
        refuse_empty(job.space)
        for note in first_notes(job, seen.completed, seen.load_s, self._request):
            self._events.note(note)
        yield Ready(job, seen.load_s, seen.cores)

    @contextmanager
    def session(self, ready: Ready, store: RunStore, manifest: Manifest) -> Iterator[Session]:
        """The session of the run, with a complete manifest; opens the other benches."""
        self._benches.terms = replace(self._benches.terms, manifest=manifest)
        self._benches.open(self._count - 1)
        session = Session(
            job=ready.job,
            bench=FirstBench(self._benches, self._book, self._events.measured),
            events=self._events,
            book=self._book,
            checkpoint=self._checkpoint,
            load_s=ready.load_s,
            arrivals=manifest.arrivals,
            accept_unsoaked=manifest.choices.accept_unsoaked,
            more_s=self._request.more_s,
            cores=ready.cores,
            benches=self._benches,
        )
        yield stored_in(store, session)


@contextmanager
def on_benches(
    job: Job,
    request: Request,
    run: Path,
    book: TimeBook,
    events: Events,
    stop: Stop,
    checkpoint: Callable[[], None],
) -> Iterator[OnBenches]:
    """The benches of a run on Ray; none is open yet.

    Raises:
        EnvironmentNotReadyError: Ray is not installed, does not start, or lacks GPUs or CPUs.
        SpecError: The spec cannot be measured on benches.
    """
    if missing := lacking(Extra.RAY):
        raise missing
    refuse_misfits_for_benches(job.spec.name, job.spec)
    started: list[OnBenches] = []

    def heard(bench: str, what: object) -> None:
        started[0].hear(bench, what)

    events.step("starting Ray" if request.ray is None else f"joining Ray at {request.ray}")
    with ray_fleet(request.ray, heard, stop) as fleet, stop.listening():
        started.append(OnBenches(fleet, job, request, run, book, events, stop, checkpoint))
        yield started[0]
