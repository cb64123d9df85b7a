"""`tune run` with several specs: one after the other here, or in parallel on benches of Ray.

A run that fails does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, SpecError, TunerError
from tuner.extras import Extra, lacking
from tuner.fleet import Bench, BenchPlace, Fleet, Heard, Post, local_fleet
from tuner.fleet_on_ray import ray_fleet
from tuner.machine.host import read_host
from tuner.machine.stop import Stop
from tuner.prepare.job import Job, Request
from tuner.prepare.manifest import choices_of
from tuner.progress.events import Events
from tuner.progress.posted import PostedEvents
from tuner.record.manifest import refuse_changes, resume_command
from tuner.record.series import SERIES, Member, Series, read_series, write_series
from tuner.record.status import Status
from tuner.record.store import MANIFEST, RunStore, new_run_id, written_by_one
from tuner.run.bench_side import SHARE_FILES
from tuner.run.on_benches import need_of, note_on_niceness, refuse_misfits_for_benches
from tuner.run.resume import with_choices
from tuner.run.run import checked_job, run, spec_after_repair
from tuner.run.trust import BegunRuns, refuse_unnamed, untrusted
from tuner.spec.load import load_spec
from tuner.spec.mistakes import Mistake, SpecMistakesError
from tuner.spec.model import Spec


@dataclass(frozen=True)
class Show:
    """How the progress of a series is shown.

    Attributes:
        events: Shows one run.
        together: Shows runs in parallel: receives the name of a run with a `RunProgress` or a
            sentence, and None when the run has ended.
        note: Shows a sentence between two runs.
        failed: Shows the error of a run.
        report: Renders the reports into the directory of a run.
        summarize: Renders the reports into the directory of the series.
    """

    events: Callable[[], AbstractContextManager[Events]]
    together: Callable[[], AbstractContextManager[Heard]]
    note: Callable[[str], None]
    failed: Callable[[Exception], object]
    report: Callable[[Path], object]
    summarize: Callable[[Path], object]


def run_series(specs: Sequence[Path], request: Request, show: Show) -> tuple[Path, Series]:
    """Tunes the models of each spec, or resumes the series in the directory ``request.resume``.

    Args:
        specs: The specs; of a resumed series, those that have no result yet, or none.

    Raises:
        SpecError: All mistakes of the specs, and models that two specs search, before any run
            starts; or a spec or the machine of the resumed series changed.
        EnvironmentNotReadyError: All runs lack the same program or file.
        InterruptedRunError: Stopped by a signal; the hint has the command that resumes the series.
    """
    if request.on is not None and (missing := lacking(Extra.RAY)):
        raise missing
    if request.resume is None:
        jobs = checked_jobs(specs, request, show.note)
        directory = request.output / new_run_id("series")
        members = tuple(
            Member(str(path), job.spec.name, spec_sha256=job.loaded.sha256)
            for path, job in zip(specs, jobs, strict=True)
        )
        paths = {str(path): path for path in specs}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        choices, machine = choices_of(request), _machine(request)
        write_series(directory, Series(now, choices, request.seed, members, machine))
    else:
        directory = request.resume.resolve()
    with written_by_one(directory):
        series = read_series(directory)
        if request.resume is not None:
            paths = _specs_of(series, directory, specs, BegunRuns(request.state))
            waiting = list(paths.values())
            chosen = with_choices(request, directory, waiting, series.choices, series.seed)
            request = replace(chosen, resume=None, output=directory.absolute().parent)
            jobs = checked_jobs(waiting, request, show.note)
            before = {m.spec: m.spec_sha256 for m in series.members if m.spec in paths}
            after = {name: job.loaded.sha256 for name, job in zip(paths, jobs, strict=True)}
            here = _machine(request)
            wrong = [f"{spec} was edited" for spec in before if before[spec] != after.get(spec)]
            if here != series.fingerprint:
                wrong.append(f"machine (fingerprint): {series.fingerprint} then, {here} now")
            refuse_changes(f"series {directory.name}", wrong)
        alone = {name: job.spec for name, job in zip(paths, jobs, strict=True)}
        for name, spec in alone.items() if request.on is not None else ():
            refuse_misfits_for_benches(name, spec)
        began = {_spec(series, m): m.spec_sha256 for m in series.members if m.spec in paths}
        if failed := BegunRuns(request.state).remember(directory, began):
            show.note(failed)
        return directory, _go_on(directory, series, paths, alone, request, show)


def _machine(request: Request) -> str:
    return read_host(request.environment).fingerprint("")


def checked_jobs(specs: Sequence[Path], request: Request, note: Callable[[str], None]) -> list[Job]:
    """The job of each spec; raises for mistakes of any spec, and for a model in two specs."""
    errors = list[tuple[Path, TunerError]]()
    jobs, searched = list[Job](), dict[Path, Path]()
    for spec in specs:
        try:
            member_request = replace(request, spec=spec)
            job = checked_job(member_request, spec_after_repair(member_request, note))
        except TunerError as error:
            errors.append((spec, error))
            continue
        jobs.append(job)
        for label in job.searched:
            model = job.served.models[label]
            first = searched.setdefault(model.files.path.resolve(), spec)
            if first is not spec:
                text = f"{model.name} is already searched by {first}"
                errors.append((spec, SpecError(text, "name each model once")))
    if len(errors) == 1 and len(specs) == 1:
        raise errors[0][1]
    if errors and all(isinstance(error, EnvironmentNotReadyError) for _, error in errors):
        texts = dict.fromkeys(error.message for _, error in errors)
        raise EnvironmentNotReadyError("\n".join(texts), errors[0][1].hint)
    if errors:
        raise SpecMistakesError([m for spec, error in errors for m in _mistakes(spec, error)])
    return jobs


def _mistakes(spec: Path, error: TunerError) -> Sequence[Mistake]:
    if isinstance(error, SpecMistakesError):
        return error.mistakes
    return [Mistake(str(spec), 1, 1, "", "; ".join(error.message.splitlines()))]


def _spec(series: Series, member: Member) -> Path:
    return Path(series.choices.directory) / member.spec


def _specs_of(
    series: Series, directory: Path, given: Sequence[Path], begun: BegunRuns
) -> dict[str, Path]:
    """The specs that have no result yet, by their names in the series.

    Paths from the series itself are used only if this user began the series.
    """
    waiting = [member for member in series.members if not member.done]
    there = {member.spec: _spec(series, member) for member in waiting}
    named = {path.resolve(): path for path in given}
    for member, path in zip(waiting, there.values(), strict=True):
        where = "" if path.resolve() in named else "not in the command"
        if not given:
            where = untrusted(directory, path, member.spec_sha256, begun)
        if where:
            left, why = list(there.values()), f"the spec {path} is {where}"
            refuse_unnamed(why, directory, left, series.choices)
    return {name: named.get(path.resolve(), path) for name, path in there.items()}


def _go_on(
    directory: Path,
    series: Series,
    specs: Mapping[str, Path],
    valid_specs: Mapping[str, Spec],
    request: Request,
    show: Show,
) -> Series:
    """Runs the specs that have no result yet, and stores the state of the series after each."""
    stop, state = Stop(show.note), _State(directory, series, show)
    members = state.members
    try:
        with ExitStack() as contexts:
            heard = contexts.enter_context(_listening(members, request, show))
            fleet: Fleet = contexts.enter_context(_fleet(request, heard, stop))
            contexts.enter_context(stop.listening())
            for number in [n for n, member in enumerate(members) if not member.done]:
                while fleet.most is not None and len(fleet.benches()) >= fleet.most:
                    state.collect(fleet)
                if stop.requested:
                    break
                member = members[number]
                if not (member.run and (request.output / member.run / MANIFEST).is_file()):
                    member = replace(member, run=new_run_id(member.name))
                    state.keep(number, member)  # before the run starts, so that it can be resumed
                member_request = replace(request, spec=specs[member.spec], on=None)
                work = _Work(directory, member, member_request, show.report, _view(request, show))
                fleet.open(member.run, tuned, work, need_of(fleet, valid_specs[member.spec]))
                fleet.submit(member.run, None)
            while fleet.benches():
                heard(state.collect(fleet), None)
            stop.checkpoint()
    except InterruptedRunError as error:
        done = sum(member.done for member in members)
        left = [str(specs[member.spec]) for member in members if not member.done]
        command = resume_command(directory, left, choices_of(request))
        error.hint = f"{done} of {len(members)} are done; go on with: {command}"
        raise
    return replace(series, members=tuple(members))


class _State:
    """The state of a series, in memory and in its directory."""

    def __init__(self, directory: Path, series: Series, show: Show) -> None:
        self._directory, self._series, self._show = directory, series, show
        self.members = list(series.members)

    def keep(self, number: int, member: Member) -> None:
        self.members[number] = member
        series = replace(self._series, members=tuple(self.members))
        write_series(self._directory, series)
        self._show.summarize(self._directory)

    def collect(self, fleet: Fleet) -> str:
        """Waits until a run has ended, and stores its result; returns its id."""
        done = fleet.next_done()
        fleet.close(done.bench)
        number = next(n for n, member in enumerate(self.members) if member.run == done.bench)
        if done.error is None:
            self.keep(number, done.value)
        elif not isinstance(done.error, InterruptedRunError):
            self.keep(number, _failed(self.members[number], done.error))
            self._show.failed(done.error)
        return done.bench


def _fleet(request: Request, heard: Heard, stop: Stop) -> AbstractContextManager[Fleet]:
    return local_fleet(heard, stop) if request.on is None else ray_fleet(request.ray, heard, stop)


@contextmanager
def _listening(members: Sequence[Member], request: Request, show: Show) -> Iterator[Heard]:
    """Shows the messages of benches under the names of their runs."""
    together = show.together() if request.on is not None else nullcontext(None)

    def heard(bench: str, what: object) -> None:
        number, member = next((n, m) for n, m in enumerate(members) if m.run == bench)
        if isinstance(what, BenchPlace):
            where = "" if request.on is None else f", on {what}"
            show.note(f"{number + 1} of {len(members)}: {member.name}, {member.spec}{where}")
            for note in note_on_niceness(member.name, what):
                show.note(note)
        elif isinstance(what, Exception):
            show.failed(what)
        elif show_event is not None:
            show_event(member.name, what)

    with together as show_event:
        yield heard


@dataclass(frozen=True)
class _RunView:
    """How one run of a series is shown and stopped."""

    events: Events
    stop: Stop
    failed: Callable[[Exception], object]


@dataclass(frozen=True)
class _Work:
    """One run of a series, sent to the process of a bench, which reads the spec's file.

    Attributes:
        series: Directory of the series, under the same path on the bench.
        member: The run in the series.
        request: The request with the spec of the run.
        report: Renders the reports into the directory of a run.
        view_of: Shows and stops the run, given the connection of the bench.
    """

    series: Path
    member: Member
    request: Request
    report: Callable[[Path], object]
    view_of: Callable[[Post], AbstractContextManager[_RunView]]


def _view(request: Request, show: Show) -> Callable[[Post], AbstractContextManager[_RunView]]:
    if request.on is not None:
        return _posted

    @contextmanager
    def here(post: Post) -> Iterator[_RunView]:
        with show.events() as events:
            stop = Stop(events.note)
            yield _RunView(events, stop, show.failed)
        post.stop.requested |= stop.requested

    return here


@contextmanager
def _posted(post: Post) -> Iterator[_RunView]:
    yield _RunView(PostedEvents(post.send), post.stop, post.send)


@contextmanager
def tuned(place: BenchPlace, post: Post, work: _Work) -> Iterator[Bench]:
    """A bench whose work is one run.

    Raises:
        EnvironmentNotReadyError: The machine of the bench lacks the files of the series.
    """
    if place.cpus:
        work = replace(work, request=_there(place, work))
    yield lambda _: _tune(post, work)


def _there(place: BenchPlace, work: _Work) -> Request:
    """The request for a bench in another process, perhaps on another machine."""
    request, member = work.request, work.member
    shares = (work.series / SERIES).is_file() and request.spec.is_file()
    if not shares or load_spec(request.spec, request.overrides).sha256 != member.spec_sha256:
        raise EnvironmentNotReadyError(
            f"{place.host} does not have the same {request.spec} and {work.series} as the run",
            SHARE_FILES,
        )
    return replace(request, gpus=place.gpus)


def _failed(member: Member, error: Exception) -> Member:
    code = error.exit_code if isinstance(error, TunerError) else TunerError.exit_code
    text = error.message if isinstance(error, TunerError) else f"a defect: {error!r}"
    return replace(member, status=Status.FAILED, exit_code=code, error=text)


def _tune(post: Post, work: _Work) -> Member:
    """Starts or resumes a run; returns the member with its result."""
    member, request = work.member, work.request
    directory = request.output / member.run
    begun = (directory / MANIFEST).is_file()
    stored = RunStore(directory).full_result() if begun and member.exit_code is None else None
    ended = Status.INTERRUPTED if stored is None else stored.status
    if ended not in (
        Status.FAILED,
        Status.INTERRUPTED,
    ):  # killed after the run ended, before the series recorded it
        work.report(directory)
        return replace(member, status=ended, exit_code=ended.exit_code)
    request = replace(request, resume=directory if begun else None, run_id=member.run)
    with work.view_of(post) as view:
        try:
            ended = run(request, view.events, work.report, view.stop).result.status
            return replace(member, status=ended, exit_code=ended.exit_code, error="")
        except InterruptedRunError as error:
            view.stop.requested = True
            return replace(member, status=Status.INTERRUPTED, exit_code=error.exit_code)
        except Exception as error:
            view.failed(error)
            return _failed(member, error)
