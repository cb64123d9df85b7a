"""`tune run` as a list of steps: read this first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from tuner.bench.events import Events
from tuner.bench.job import Job, Request, prepare, refuse_no_repository
from tuner.bench.machine_lock import among_neighbours, only_one_on
from tuner.bench.sending import refuse_unreachable, sending_notes
from tuner.bench.serving import Serving, serving
from tuner.bench.session import Session, open_session
from tuner.bench.timebook import TimeBook
from tuner.bench.tools import LARGE_BYTES, client_notes, find_programs, queue_notes, request_notes
from tuner.errors import InterruptedRunError, TunerError
from tuner.machine.stop import Stop, explain_error
from tuner.measurement.measurement import Stage
from tuner.proof.edges import with_edges
from tuner.proof.overload import probe_overload
from tuner.proof.proof import prove
from tuner.proof.warmup import probe_warm_up
from tuner.record.store import RunStore, new_run_id
from tuner.run.ending import Ending, Finished, how_to_go_on
from tuner.run.open_run import (
    end_of_a_write,
    open_run,
    open_store,
    refuse_another_start,
    restore_choices,
)
from tuner.score.trial import Trial
from tuner.search.cores import settle_cores
from tuner.search.estimate import (
    SLOW_LOAD_S,
    Seen,
    foresee_run,
    minutes,
    refuse_too_short,
    replay_notes,
    seen_before,
)
from tuner.search.incumbent import incumbent
from tuner.search.outlook import Ahead, outlook_of
from tuner.search.searcher import Searcher
from tuner.search.searching import search
from tuner.search.strategies.designs import designs
from tuner.space.build import refuse_empty
from tuner.spec.load import LoadedSpec, load_spec
from tuner.spec.units import count_text
from tuner.triton.launchers import host_of
from tuner.writeback.repository import half_written, repair, unwritable
from tuner.writeback.target import foreseen


def run(
    request: Request,
    events: Events,
    report: Callable[[Path], object],
    stop: Stop | None = None,
) -> Finished:
    """Tunes what a spec names, and writes the best config back.

    ``report`` makes the reports in the directory of a run. ``stop`` hears the signals, and may be
    asked afterwards.

    Raises:
        TunerError: With the exit code of its class. Once the run has a directory, that holds a
            result and a report all the same.
    """
    request = restore_choices(request)
    try:
        finished = _run(request, events, report, stop or Stop(events.note))
    except Exception as error:
        told = explain_error(error, request.output)
        if isinstance(told, InterruptedRunError) and not told.hint and request.resume is not None:
            with suppress(TunerError, OSError):  # stopped before the run was open again
                told.hint = how_to_go_on(RunStore(request.resume))
        if told is error:
            raise
        raise told from (None if isinstance(told, InterruptedRunError) else error)
    status = finished.result.status
    events.ended(finished.directory, status.value, status.exit_code)
    return finished


def settled_spec(request: Request, note: Callable[[str], None]) -> LoadedSpec:
    """The spec of a request, once half a write in its repository has been undone."""
    loaded = load_spec(request.spec, request.overrides)
    refuse_no_repository(loaded)
    for undone in undo_half_writes(loaded.spec.repository, write=request.write):
        note(undone)
    return loaded


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


def checked_job(request: Request, loaded: LoadedSpec) -> Job:
    """All that can be found wrong before anything is started."""
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
        loaded = settled_spec(request, events.note)
        if request.resume is not None:
            ended = end_of_a_write(request.resume, request, loaded.spec, events.note)
            if ended is not None:
                events.note("the winner was written before; only the reports are made again")
                report(request.resume)
                return Finished(request.resume, ended)
        job = checked_job(request, loaded)
        run_id = request.run_id or new_run_id(job.spec.name)
        if request.resume is not None:
            run_id = request.resume.name
            host = host_of(job.spec, request.environment)
            refuse_another_start(request.resume, job, host)
        enter(only_one_on(job))
        neighbours = enter(among_neighbours("run", run_id, job, events.note))
        events.step("looking for tritonserver and perf_analyzer")
        programs = enter(find_programs(job, request.environment, events.note))
        refuse_unreachable(job, request.environment)
        store = enter(open_store(job, programs, request, run_id, events.note))
        # From here on, an error is stored as the run's result before it goes on.
        ending = enter(Ending(request, store, neighbours, book, events, report))
        events.phase(f"serving {job.spec.name}")
        served = enter(serving(job, programs, store.logs, book, events.step))
        refuse_empty(served.job.space)
        for note in _beforehand(served, request):
            events.note(note)

        def checkpoint() -> None:
            neighbours.look()
            stop.checkpoint()

        known = store.manifest().cores
        cores = settle_cores(served, events, book, checkpoint, known, designs(job.space)[:1])
        opened = enter(open_run(served.job, store, request, book, events.note, cores))
        events.started(store.directory, job.spec.budget.trials, opened.manifest.space_size)
        with open_session(
            served,
            events,
            book,
            checkpoint,
            manifest=opened.manifest,
            store=store,
            more_s=request.more_s,
            cores=cores,
        ) as session:
            trials = _search(session, opened.searcher, store)
            stored = store.confirmation()
            if stored:
                kept = count_text(len(stored), "measurement")
                events.note(f"going on with its proof, with {kept} kept")
            verdict = with_edges(session, trials, prove(session, trials, stored))
            verdict = probe_overload(session, verdict)
            verdict = probe_warm_up(session, verdict)
        stop.measured()  # asked to stop during the last measurement: nothing is written
        return ending.finish(served.job, opened, verdict)
    raise AssertionError("no context keeps an error to itself")


def _beforehand(served: Serving, request: Request) -> Iterator[str]:
    """What the user should know before the first measurement."""
    job = served.job
    if served.completed:
        yield served.completed
    yield from client_notes(job)
    yield from sending_notes(job, request.environment, costly_only=True)
    if served.load_s >= SLOW_LOAD_S:
        yield f"loading the model took {served.load_s:.0f} s"
    if request.resume is None:
        seen = seen_before(request.output, job) or Seen(load_s=served.load_s)
        yield foresee_run(request.output, job, seen).sentence
    yield from queue_notes(job)
    yield from request_notes(job, LARGE_BYTES)
    yield from replay_notes(job)
    yield from foreseen(job.searched_files) if request.write else ()


def _search(session: Session, searcher: Searcher, store: RunStore) -> list[Trial]:
    """All trials of the run, those of an earlier part of it included."""
    session.events.phase("searching")
    known = len(store.trials())
    trials, reason = search(session, searcher)
    searcher.over()
    session.events.note(reason.value.format(number=len(trials)))
    session.bench.enter(Stage.CONFIRMATION)
    if len(trials) > known:  # other finalists, or an interval of the search in between
        store.cut_confirmation(0)
    if incumbent(trials, session.spec.objective.goal, session.current) is not None:
        outlook = outlook_of(session.job, trials, ahead=Ahead.ROUNDS)
        session.events.outlook(outlook)
        session.events.note(f"the proof takes about {minutes(outlook.left_s)}")
    return trials
