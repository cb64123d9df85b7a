"""`tune run` as a list of steps: read this first.

    prepare ─> find_programs ─> open_store ─> serving ─> open_run ─> open_session ─> search ─> prove
            ─> probe_overload ─> draw_up ─> write_back

`serving` returns a new job, over the config as the server completes it; `open_session` holds all
that the later steps share. Once the run has a directory, its result and its report are written
before any error is raised further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.bench.timebook import Phase, TimeBook
from tuner.confirm.repeatability import noise_of
from tuner.confirm.resumed import finished_rows
from tuner.errors import InterruptedRunError, TunerError
from tuner.machine.host import read_host
from tuner.measurement.rejected import Stage
from tuner.run.choices import resume_command
from tuner.run.result_schema import Result
from tuner.run.status import Status
from tuner.run.store import RunStore, new_run_id
from tuner.search.study.uninterrupted import uninterrupted
from tuner.spec.load import load_spec
from tuner.steps.estimate import SLOW_LOAD_S, Seen, estimate_run, refuse_too_short
from tuner.steps.events import Events
from tuner.steps.failing import explain_error
from tuner.steps.job import Job, Request, prepare, refuse_missing_extra
from tuner.steps.lengths import trace_notes
from tuner.steps.neighbours import Neighbours, among_neighbours, only_one_on
from tuner.steps.opening import OpenRun, open_run, open_store, refuse_another_start
from tuner.steps.outcome import Change, Verdict, result_of, side_of_trial
from tuner.steps.overloading import probe_overload
from tuner.steps.proving import prove
from tuner.steps.resuming import restore_choices
from tuner.steps.searching import search
from tuner.steps.serving import Serving, serving
from tuner.steps.session import open_session, resume_confirmation
from tuner.steps.stop import Stop
from tuner.steps.tools import Programs, find_programs
from tuner.steps.traffic import client_notes, large_requests
from tuner.steps.writing import best_configs, draw_up, foreseen, settle_writes, write_back
from tuner.writeback.written import Written


@dataclass(frozen=True)
class Finished:
    """A run that came to its end; ``result`` is what `result.json` holds."""

    directory: Path
    result: Result


@dataclass(frozen=True)
class _Run:
    """A run from the moment it has a directory."""

    request: Request
    job: Job
    store: RunStore
    neighbours: Neighbours
    book: TimeBook
    stop: Stop
    events: Events
    report: Callable[[Path], object]

    def checkpoint(self) -> None:
        """Between measurements: checks who else measures, and whether the run is to stop."""
        self.neighbours.look()
        self.stop.checkpoint()


def run(request: Request, events: Events, report: Callable[[Path], object]) -> Finished:
    """From a spec to the written config.

    ``report``: makes the reports in the directory of a run.

    Raises:
        TunerError: With the exit code of its class. Once the run has a directory, that holds a
            result and a report all the same.
    """
    request = restore_choices(request)
    try:
        return _run(request, events, report)
    except Exception as error:
        told = explain_error(error, request.output)
        if told is error:
            raise
        raise told from (None if isinstance(told, InterruptedRunError) else error)


def _run(request: Request, events: Events, report: Callable[[Path], object]) -> Finished:
    book = TimeBook()
    stop = Stop(events.note)
    with stop.listening():
        loaded = load_spec(request.spec)
        for undone in settle_writes(loaded.spec.repository, write=request.write):
            events.note(undone)
        job = prepare(request, loaded)
        refuse_missing_extra(job)
        refuse_too_short(job)
        run_id = new_run_id(job.spec.name) if request.resume is None else request.resume.name
        if request.resume is not None:
            refuse_another_start(request.resume, job, read_host(request.environment))
        with (
            only_one_on(job),
            among_neighbours("run", run_id, job, events.note) as neighbours,
            find_programs(job, request.environment) as programs,
            open_store(job, programs, request, run_id) as store,
        ):
            run = _Run(request, job, store, neighbours, book, stop, events, report)
            try:
                return _serve(run, programs)
            except Exception as error:
                _end_early(run, explain_error(error, store.directory))
                raise


def _serve(run: _Run, programs: Programs) -> Finished:
    """The run, over what the server makes of the config."""
    store, book, events = run.store, run.book, run.events
    with (
        serving(run.job, programs, store.logs, book) as served,
        open_run(served.job, store, run.request, book, events.note) as opened,
    ):
        if served.completed:
            events.note(served.completed)
        for told in client_notes(served.job):
            events.note(told)
        run = replace(run, job=served.job)
        return _end(run, opened, _tune(run, served, opened))


def _tune(run: _Run, served: Serving, opened: OpenRun) -> Verdict:
    """The search and the proof, on one bench."""
    events, searcher = run.events, opened.searcher
    events.started(run.store.directory, run.job.spec.budget.trials, opened.manifest.space_size)
    for note in _beforehand(run, served):
        events.note(note)
    with open_session(
        served, events, run.book, run.checkpoint, manifest=opened.manifest, store=run.store
    ) as session:
        events.phase("searching")
        known = len(run.store.trials())
        trials, reason = search(session, searcher)
        searcher.over()
        events.note(reason.value)
        session.bench.enter(Stage.CONFIRMATION)
        if len(trials) > known:  # other finalists, or an interval of the search in between
            run.store.cut_confirmation(0)
        proof = resume_confirmation(session, run.store)
        verdict = probe_overload(proof, prove(proof, trials))
    run.stop.measured()  # asked to stop during the last measurement: nothing is written
    return verdict


def _beforehand(run: _Run, served: Serving) -> Iterator[str]:
    """What the user should know before the first measurement."""
    job = run.job
    if served.load_s >= SLOW_LOAD_S:
        estimate = estimate_run(job, Seen(load_s=served.load_s))
        yield f"loading the model took {served.load_s:.0f} s; the run takes {estimate.text}"
    yield from large_requests(job)
    yield from trace_notes(job.spec, job.plan)
    yield from foreseen(job) if run.request.write else ()


def _end(run: _Run, opened: OpenRun, verdict: Verdict) -> Finished:
    """Draws up, writes back, and stores how it ended.

    No signal comes between writing the repository and storing that it was written.
    """
    change: Change | None = None
    store, duplicates = run.store, opened.searcher.duplicates
    with run.book.phase(Phase.WRITING):
        if verdict.winner is not None:
            winner = verdict.winner.candidate
            change = draw_up(run.job, winner)
            store.write_best(best_configs(run.job, change), winner.server_args)
        with uninterrupted():
            written = _write(run, opened, verdict, change)
            _record(run, verdict, change, written, duplicates)
        for note in written.all_notes if written else ():
            run.events.note(note)
        run.report(store.directory)
        result = _record(run, verdict, change, written, duplicates)  # reporting took time
    return Finished(store.directory, result)


def _write(run: _Run, opened: OpenRun, verdict: Verdict, change: Change | None) -> Written | None:
    """The winner in the repository; a winner that cannot be written is kept in the result."""
    if verdict.winner is None or change is None or not run.request.write:
        return None
    winner = verdict.winner.candidate
    try:
        return write_back(opened.manifest, winner, change)
    except TunerError:
        _record(run, verdict, change, None, opened.searcher.duplicates)
        raise


def _end_early(run: _Run, error: Exception) -> None:
    """What there is so far, with the reason why there is no more."""
    store = run.store
    try:
        stored = store.result()
        if stored is not None and stored["winner"] is not None:
            run.report(
                store.directory
            )  # the run was complete: only writing back or reporting was not
            if isinstance(error, InterruptedRunError):
                error.hint = f"the run was complete and its result is kept: {store.directory}"
            return
        status, message = _explain(error)
        current = store.manifest().current
        of_current = (t for t in store.trials() if t.candidate == current)
        verdict = Verdict(status, (message,), side_of_trial(next(of_current, None)))
        with run.book.phase(Phase.WRITING):
            _record(run, verdict, None, None)
            run.report(store.directory)
            _record(run, verdict, None, None)
    except (OSError, TunerError) as second:
        run.events.note(f"the run's end could not be stored: {second}")
        return
    if isinstance(error, InterruptedRunError):
        error.hint = _how_to_go_on(run)
    elif isinstance(error, TunerError):
        error.hint = f"{error.hint}; the report: {store.directory / 'report.html'}".lstrip("; ")


def _explain(error: Exception) -> tuple[Status, str]:
    if isinstance(error, InterruptedRunError):
        return Status.INTERRUPTED, error.message
    message = error.message if isinstance(error, TunerError) else f"a defect of tune: {error!r}"
    return Status.FAILED, message


def _how_to_go_on(run: _Run) -> str:
    """What is kept, and the command that goes on."""
    store = run.store
    number, rows = len(store.trials()), finished_rows(store.confirmation())
    trials = f"{number:,} {'trial' if number == 1 else 'trials'}"
    rounds = f" and {rows} measurements of its confirmation" if rows else ""
    kept = f"nothing was written; {trials}{rounds} kept"
    command = resume_command(store.directory)
    if store.manifest().choices.lacks_a_password:
        command += " (with $TUNE_STORAGE as before: its password is not kept)"
    return f"{kept}; go on with: {command}"


def _record(
    run: _Run,
    verdict: Verdict,
    change: Change | None,
    written: Written | None,
    duplicates: int = 0,
) -> Result:
    """`result.json`."""
    store = run.store
    verdict = replace(verdict, reasons=(*verdict.reasons, *run.neighbours.remarks))
    result = result_of(
        manifest=store.manifest(),
        verdict=verdict,
        trials=store.trials(),
        rejected=store.rejected(),
        duplicates=duplicates,
        time=run.book.to_json(),
        change=change,
        written=written,
        noise=noise_of(store.confirmation()),
    )
    store.write_result(result.to_json())
    return result
