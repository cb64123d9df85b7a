"""`tune run` as a list of steps: read this first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import InterruptedRunError, StalePlanError, TunerError
from tuner.machine.stop import Stop
from tuner.measurement.measurement import Stage
from tuner.meter.session import Session, open_session
from tuner.prepare.config_watch import ConfigWatch
from tuner.prepare.job import Job, Request, prepare, requested_spec
from tuner.prepare.machine_lock import among_neighbours, only_one_on
from tuner.prepare.sending import refuse_unreachable
from tuner.prepare.serving import serving
from tuner.prepare.timebook import TimeBook
from tuner.prepare.tools import Programs, find_programs
from tuner.progress.events import Events
from tuner.proof.edges import with_edges
from tuner.proof.overload import probe_overload
from tuner.proof.proof import prove
from tuner.proof.warmup import probe_warm_up
from tuner.record.manifest import Manifest
from tuner.record.store import RunStore, new_run_id
from tuner.run.ending import Ending, Finished, how_to_go_on
from tuner.run.on_benches import on_benches
from tuner.run.open_run import open_run, open_store
from tuner.run.ready import MeasuringSite, Ready, first_notes
from tuner.run.repair import end_of_a_write, undo_half_writes
from tuner.run.resume import refuse_another_start, restore_choices
from tuner.score.trial import Trial
from tuner.search.beside import search_beside
from tuner.search.cores import settle_cores
from tuner.search.estimate import minutes, refuse_too_short, seen_before
from tuner.search.incumbent import incumbent
from tuner.search.outlook import Ahead, outlook_of
from tuner.search.searcher import Searcher
from tuner.search.searching import search
from tuner.search.strategies.designs import designs
from tuner.space.build import refuse_empty
from tuner.spec.load import LoadedSpec
from tuner.spec.units import count_text
from tuner.triton.launchers import host_of
from tuner.writeback.repository import unwritable


def run(
    request: Request,
    events: Events,
    report: Callable[[Path], object],
    stop: Stop | None = None,
) -> Finished:
    """Tunes the models of a spec, and writes the best config back.

    Args:
        report: Renders the reports into the directory of a run.
        stop: Handles the signals; shows afterwards whether a stop was requested.

    Raises:
        TunerError: With the exit code of its class. If the run has a directory by then, the
            directory has a result and a report.
    """
    request, stop = restore_choices(request), stop or Stop(events.note)
    try:
        finished = _run(request, events, report, stop)
    except Exception as error:
        explained = stop.explain(error, request.output)
        if (
            isinstance(explained, InterruptedRunError)
            and not explained.hint
            and request.resume is not None
        ):
            with suppress(TunerError, OSError):  # stopped before the run was opened
                explained.hint = how_to_go_on(RunStore(request.resume))
        if explained is error:
            raise
        raise explained from (None if isinstance(explained, InterruptedRunError) else error)
    status = finished.result.status
    events.ended(finished.directory, status.value, status.exit_code)
    return finished


def spec_after_repair(request: Request, note: Callable[[str], None]) -> LoadedSpec:
    """The spec of a request; undoes an incomplete write in its repository first."""
    loaded = requested_spec(request)
    for undone in undo_half_writes(loaded.spec.repository, write=request.write):
        note(undone)
    return loaded


def checked_job(request: Request, loaded: LoadedSpec) -> Job:
    """The job of a spec; raises for everything that can be checked before a process starts."""
    job = prepare(request, loaded)
    refuse_empty(job.space)
    if request.write and (refusal := unwritable(job.spec.repository, job.searched_files)):
        raise refusal
    if request.resume is None:
        refuse_too_short(job, seen_before(request.output, job))
    return job


def _run(
    request: Request, events: Events, report: Callable[[Path], object], stop: Stop
) -> Finished:
    book = TimeBook()
    with ExitStack() as contexts:
        enter = contexts.enter_context
        enter(stop.listening())
        loaded = spec_after_repair(request, events.note)
        earlier = None if request.resume is None else RunStore(request.resume)
        if earlier is not None:
            ended = end_of_a_write(earlier, request, loaded.spec, events.note)
            if ended is not None:
                events.note("the winner was written before: only the reports are rendered again")
                report(earlier.directory)
                return Finished(earlier.directory, ended)
        job = checked_job(request, loaded)
        run_id = request.run_id or new_run_id(job.spec.name)
        if earlier is not None:
            run_id = earlier.run_id
            host = None if request.on else host_of(job.spec, request.environment)
            refuse_another_start(earlier.manifest(), job, host)
        enter(only_one_on(job))
        neighbours = enter(among_neighbours("run", run_id, job, events.note))
        configs = ConfigWatch(job, "run", _after_an_edit(request), events.note)

        def checkpoint() -> None:
            neighbours.look()
            configs.look()
            stop.checkpoint()

        site: MeasuringSite = _LocalSite(job, request, book, events, checkpoint)
        if request.on is not None:
            directory = request.output / run_id
            site = enter(on_benches(job, request, directory, book, events, stop, checkpoint))
        programs = enter(site.programs())
        store, manifest = enter(open_store(job, programs, request, run_id, events.note))
        # From here on, an error is stored as the run's result before it is raised.
        ending = enter(Ending(request, store, book, events, report, stop))
        events.phase(f"serving {job.spec.name}")
        ready = enter(site.serving(store, manifest))
        opened = enter(
            open_run(ready.job, store, manifest, request, book, events.note, ready.cores)
        )
        events.started(store.directory, job.spec.budget.trials, opened.manifest.space_size)
        with site.session(ready, store, opened.manifest) as session:
            trials = _search(session, opened.searcher, store)
            stored = store.confirmation()
            if stored:
                kept = count_text(len(stored), "measurement")
                events.note(f"resuming the proof with {kept}")
            verdict = with_edges(session, trials, prove(session, trials, stored))
            verdict = probe_overload(session, verdict)
            verdict = probe_warm_up(session, verdict)
        stop.measured()  # raises for a stop during the last measurement: nothing is written
        return ending.finish(ready.job, opened, verdict)
    raise AssertionError("no context keeps an error to itself")


def _after_an_edit(request: Request) -> str:
    """What the edit of a config during the run means for its end."""
    if not request.write:
        return "unless that is undone, `tune apply` refuses its winner"
    return (
        f"unless that is undone before its end, its winner is not written (exit code "
        f"{StalePlanError.exit_code}) but kept for `tune apply`"
    )


@dataclass
class _LocalSite:
    """A run on this machine, with one server."""

    job: Job
    request: Request
    book: TimeBook
    events: Events
    checkpoint: Callable[[], None]
    _programs: Programs | None = None

    @contextmanager
    def programs(self) -> Iterator[Programs]:
        self.events.step("looking for tritonserver and perf_analyzer")
        environment = self.request.environment
        with find_programs(self.job, environment, self.events.note) as programs:
            refuse_unreachable(self.job, environment)
            self._programs = programs
            yield programs

    @contextmanager
    def serving(self, store: RunStore, manifest: Manifest) -> Iterator[Ready]:
        events, book, job = self.events, self.book, self.job
        assert self._programs is not None
        with serving(job, self._programs, store.logs, book, events.step) as served:
            refuse_empty(served.job.space)
            for note in first_notes(served.job, served.completed, served.load_s, self.request):
                events.note(note)
            likely = designs(job.space)[:1]
            cores = settle_cores(served, events, book, self.checkpoint, manifest.cores, likely)
            yield Ready(served.job, served.load_s, cores, served)

    def session(
        self, ready: Ready, store: RunStore, manifest: Manifest
    ) -> AbstractContextManager[Session]:
        assert ready.here is not None
        return open_session(
            ready.here,
            self.events,
            self.book,
            self.checkpoint,
            manifest=manifest,
            store=store,
            more_s=self.request.more_s,
            cores=ready.cores,
        )


def _search(session: Session, searcher: Searcher, store: RunStore) -> list[Trial]:
    """Searches; returns all trials of the run, including those of its earlier part."""
    session.events.phase("searching")
    known = len(store.trials())
    if session.benches is None:
        trials, reason = search(session, searcher)
    else:
        trials, reason = search_beside(session, session.benches, searcher)
    session.events.note(reason.value.format(number=len(trials)))
    session.bench.enter(Stage.CONFIRMATION)
    if len(trials) > known:  # new trials may change the finalists of the proof
        store.cut_confirmation(0)
    if incumbent(trials, session.spec.objective.goal, session.current) is not None:
        outlook = outlook_of(session.job, trials, ahead=Ahead.ROUNDS)
        session.events.outlook(outlook)
        session.events.note(f"the proof takes about {minutes(outlook.left_s)}")
    return trials
