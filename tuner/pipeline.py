"""The program as a list of steps: read this first.

    prepare ─> installed ─> open_store ─> serving ─> open_run ─> rigged ─> searched ─> proved
            ─> overloaded ─> draw_up ─> write_back

Each is a plain function that takes what the ones before it returned. `serving` gives the job anew,
over the config as the server completes it. Whatever goes wrong once the run has a directory, its
result and its report are written before the error goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.confirm.repeatability import noise_of
from tuner.errors import InterruptedRunError, TunerError
from tuner.modelconfig.encoding import encoded
from tuner.report.pull_request import write_proposal
from tuner.report.quantities import count_text
from tuner.report.render import render_all
from tuner.run.choices import resume_command
from tuner.run.rejected import Stage
from tuner.run.status import Status
from tuner.run.store import RunStore, new_run_id
from tuner.run.timebook import Phase, TimeBook
from tuner.search.study.uninterrupted import uninterrupted
from tuner.steps.client import client_notes
from tuner.steps.estimate import SLOW_LOAD_S, Seen, estimated
from tuner.steps.events import Events
from tuner.steps.failing import explained_error
from tuner.steps.job import Job, Request, prepare
from tuner.steps.lengths import trace_notes
from tuner.steps.meanwhile import meanwhile
from tuner.steps.neighbours import Neighbours, among_neighbours, only_one_on
from tuner.steps.noise import near_miss, too_fine
from tuner.steps.opening import OpenRun, open_run, open_store
from tuner.steps.outcome import EXIT_CODES, Change, Verdict, result_json, side_of_trial
from tuner.steps.overloading import Overloading, overloaded
from tuner.steps.programs import Programs, installed
from tuner.steps.proving import Proof, proved
from tuner.steps.request_size import large_requests
from tuner.steps.resuming import resumed
from tuner.steps.rig import Watch, rigged
from tuner.steps.searching import Search, searched
from tuner.steps.serving import Serving, serving
from tuner.steps.stop import Stop
from tuner.steps.writing import draw_up, foreseen, write_back
from tuner.writeback.apply import Written


@dataclass(frozen=True)
class Finished:
    """A run that came to its end; ``result`` is `result.json`."""

    directory: Path
    result: dict[str, Any]
    exit_code: int


@dataclass(frozen=True)
class _Session:
    """What the steps of one run share, from the moment it has a directory."""

    request: Request
    job: Job
    store: RunStore
    neighbours: Neighbours
    book: TimeBook
    stop: Stop
    events: Events

    def checkpoint(self) -> None:
        """Between measurements: looks who else measures, and whether the run is to stop."""
        self.neighbours.look()
        self.stop.checkpoint()


def run(request: Request, events: Events) -> Finished:
    """From a spec to the written config.

    Raises:
        TunerError: With the exit code of its class. Once the run has a directory, that holds a
            result and a report all the same.
    """
    request = resumed(request)
    try:
        return _run(request, events)
    except Exception as error:
        told = explained_error(error, request.output)
        if told is error:
            raise
        raise told from (None if isinstance(told, InterruptedRunError) else error)


def _run(request: Request, events: Events) -> Finished:
    book = TimeBook()
    stop = Stop(events.note)
    with stop.listening():
        job = prepare(request)
        run_id = new_run_id(job.spec.model) if request.resume is None else request.resume.name
        with (
            only_one_on(job),
            among_neighbours("run", run_id, job, events.note) as neighbours,
            installed(job, request.environment) as programs,
            open_store(job, programs, request, run_id) as store,
        ):
            session = _Session(request, job, store, neighbours, book, stop, events)
            try:
                with meanwhile(job.spec, book):
                    return _served(session, programs)
            except Exception as error:
                _ended_early(session, explained_error(error, store.directory))
                raise


def _served(session: _Session, programs: Programs) -> Finished:
    """The run, over what the server makes of the config."""
    store, book, events = session.store, session.book, session.events
    with (
        serving(session.job, programs, store.logs, book) as served,
        open_run(served.job, store, session.request, book, events.note) as opened,
    ):
        if served.completed:
            events.note(served.completed)
        for told in client_notes(served.job):
            events.note(told)
        session = replace(session, job=served.job)
        return _ended(session, opened, _tuned(session, served, opened))


def _tuned(session: _Session, served: Serving, opened: OpenRun) -> Verdict:
    """The search and the proof, on one rig."""
    spec, store, events = session.job.spec, session.store, session.events
    events.started(store.directory, spec.budget.trials, opened.manifest.space_size)
    if warning := too_fine(opened.manifest.noise, spec):
        events.note(warning)
    if served.load_s >= SLOW_LOAD_S:
        told = _time(session.job, None, served.load_s)
        events.note(f"loading the model took {served.load_s:.0f} s; the run takes {told}")
    for warning in (*large_requests(session.job), *trace_notes(spec, session.job.plan)):
        events.note(warning)
    for warning in foreseen(session.job) if session.request.write else ():
        events.note(warning)
    watch = Watch(session.book, events, session.checkpoint, store.append_rejected)
    with rigged(served, watch) as bench:
        events.phase("searching")
        trials, reason = searched(
            Search(
                spec=spec,
                plan=session.job.plan,
                bench=bench,
                searcher=opened.searcher,
                store=store,
                book=session.book,
                events=events,
                checkpoint=session.checkpoint,
                current=session.job.space.current,
                load_s=served.load_s,
                takes=lambda rate: f"the run takes {_time(session.job, rate, served.load_s)}",
                near_miss=near_miss(opened.manifest.noise),
            )
        )
        opened.searcher.over()
        events.note(reason.value)
        proof = Proof(
            spec=spec,
            plan=session.job.plan,
            bench=bench,
            record=lambda row: store.append_confirmation(row.to_json()),
            events=events,
            current=session.job.space.current,
            allowed=lambda candidate: not session.job.space.violations(candidate),
            same=session.job.space.alike,
            near_miss=near_miss(opened.manifest.noise),
            arrivals=opened.manifest.arrivals,
        )
        bench.enter(Stage.CONFIRMATION)
        verdict = proved(proof, trials)
        verdict = overloaded(Overloading(spec, session.job.plan, bench, events), verdict)
    session.stop.measured()  # asked to stop during the last measurement: nothing is written
    return verdict


def _time(job: Job, rate_per_s: float | None, load_s: float) -> str:
    return estimated(job, Seen(rate_per_s, load_s)).text


def _ended(session: _Session, opened: OpenRun, verdict: Verdict) -> Finished:
    """Draws up, writes back, and stores how it ended.

    No signal comes between writing the repository and storing that it was written.
    """
    change: Change | None = None
    store, duplicates = session.store, opened.searcher.duplicates
    with session.book.phase(Phase.WRITING):
        if verdict.winner is not None:
            winner = verdict.winner.candidate
            change = draw_up(session.job, winner)
            after = encoded(change.after, session.job.model.encoding)
            store.write_best(after, winner.server_args)
        with uninterrupted():
            written = _written(session, opened, verdict, change)
            _record(session, verdict, change, written, duplicates)
        for note in written.notes if written else ():
            session.events.note(note)
        _render(session)
        result = _record(session, verdict, change, written, duplicates)  # reporting took time
    return Finished(store.directory, result, EXIT_CODES[verdict.status])


def _written(
    session: _Session, opened: OpenRun, verdict: Verdict, change: Change | None
) -> Written | None:
    """The winner in the repository; a winner that cannot be written is kept in the result."""
    if verdict.winner is None or change is None or not session.request.write:
        return None
    winner = verdict.winner.candidate
    try:
        return write_back(opened.manifest, session.job, winner, change)
    except TunerError:
        _record(session, verdict, change, None, opened.searcher.duplicates)
        raise


def _ended_early(session: _Session, error: Exception) -> None:
    """What there is so far, with the reason why there is no more."""
    store = session.store
    try:
        stored = store.result()
        if stored is not None and stored["winner"] is not None:
            _render(session)  # the run was through: only writing back or reporting was not
            if isinstance(error, InterruptedRunError):
                error.hint = f"the run was through, its result is kept: {store.directory}"
            return
        status, message = _told(error)
        current = store.manifest().current
        of_current = (t for t in store.trials() if t.candidate.to_json() == current)
        verdict = Verdict(status, (message,), side_of_trial(next(of_current, None)))
        with session.book.phase(Phase.WRITING):
            _record(session, verdict, None, None)
            _render(session)
            _record(session, verdict, None, None)
    except (OSError, TunerError) as second:
        session.events.note(f"the run's end could not be stored: {second}")
        return
    if isinstance(error, InterruptedRunError):
        error.hint = _how_to_go_on(session)
    elif isinstance(error, TunerError):
        error.hint = f"{error.hint}; the report: {store.directory / 'report.html'}".lstrip("; ")


def _told(error: Exception) -> tuple[Status, str]:
    if isinstance(error, InterruptedRunError):
        return Status.INTERRUPTED, error.message
    message = error.message if isinstance(error, TunerError) else f"a defect of tune: {error!r}"
    return Status.FAILED, message


def _how_to_go_on(session: _Session) -> str:
    """What is kept, and the command that goes on."""
    store = session.store
    trials = count_text(len(store.trials()), "trial")
    again = "; its proof begins anew" if store.confirmation() else ""
    kept = f"nothing was written; {trials} kept{again}"
    command = resume_command(store.directory)
    if store.manifest().choices.lacks_a_password:
        command += " (with $TUNE_STORAGE as before: its password is not kept)"
    return f"{kept}; go on with: {command}"


def _record(
    session: _Session,
    verdict: Verdict,
    change: Change | None,
    written: Written | None,
    duplicates: int = 0,
) -> dict[str, Any]:
    """`result.json`."""
    store = session.store
    verdict = replace(verdict, reasons=(*verdict.reasons, *session.neighbours.remarks))
    result = result_json(
        run_id=store.run_id,
        model=session.job.spec.model,
        spec_sha256=session.job.loaded.sha256,
        objective=str(session.job.spec.objective),
        verdict=verdict,
        trials=store.trials(),
        rejected=store.rejected(),
        duplicates=duplicates,
        time=session.book.to_json(),
        change=change,
        written=written,
        noise=noise_of(store.confirmation()),
    )
    store.write_result(result)
    return result


def _render(session: _Session) -> None:
    """Reports and proposal."""
    directory = session.store.directory
    render_all(directory)
    write_proposal(directory)
