"""`tune run` of several specs, one after the other: what fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, SpecError, TunerError
from tuner.programs.run.open_run import untrusted, with_choices
from tuner.programs.run.run import checked_job, run, settled_spec
from tuner.run.manifest import resume_command
from tuner.run.result_schema import Result
from tuner.run.status import Status
from tuner.run.store import (
    MANIFEST,
    SERIES,
    Member,
    RunStore,
    Series,
    new_run_id,
    read_series,
    write_series,
    written_by_one,
)
from tuner.spec.mistakes import Mistake, SpecMistakesError
from tuner.steps.events import Events
from tuner.steps.job import Request
from tuner.steps.manifest import choices_of
from tuner.steps.stop import Stop


@dataclass(frozen=True)
class Show:
    """How a series is shown while it goes on.

    ``events`` shows one run, ``note`` tells a sentence between two; ``report`` makes the reports in
    the directory of a run, ``summarize`` those in the directory of the series.
    """

    events: Callable[[], AbstractContextManager[Events]]
    note: Callable[[str], None]
    failed: Callable[[Exception], object]
    report: Callable[[Path], object]
    summarize: Callable[[Path], object]


def run_series(specs: Sequence[Path], request: Request, show: Show) -> tuple[Path, Series]:
    """Tunes what each spec names, or goes on with a series: ``request.resume`` is its directory.

    Raises:
        SpecError: A spec is wrong, or two search one model: all such mistakes, before any run.
        EnvironmentNotReadyError: Something that all of them need is missing.
        InterruptedRunError: Stopped by a signal; the hint goes on with all of it.
    """
    if request.resume is None:
        names = names_in(specs, request, show.note)
        directory = request.output / new_run_id("series")
        members = tuple(Member(str(s), name) for s, name in zip(specs, names, strict=True))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_series(directory, Series(now, choices_of(request), request.seed, members))
    else:
        directory = request.resume.resolve()
    with written_by_one(directory):
        series = read_series(directory)
        if request.resume is not None:
            chosen = with_choices(request, directory.name, series.choices, series.seed)
            request = replace(chosen, resume=None, output=directory.absolute().parent)
            waiting = [_spec_of(series, m, directory) for m in series.members if not m.done]
            names_in(waiting, request, show.note)
        return directory, _go_on(directory, series, request, show)


def names_in(specs: Sequence[Path], request: Request, note: Callable[[str], None]) -> list[str]:
    """The name of each spec, once all of them have been checked, and each model has one."""
    errors = list[tuple[Path, TunerError]]()
    names, searched = list[str](), dict[Path, Path]()
    for spec in specs:
        try:
            own = replace(request, spec=spec)
            job = checked_job(own, settled_spec(own, note))
        except TunerError as error:
            errors.append((spec, error))
            continue
        names.append(job.spec.name)
        for label in job.searched:
            model = job.served.models[label]
            first = searched.setdefault(model.files.path.resolve(), spec)
            if first is not spec:
                told = f"{model.name} is searched by {first} already"
                errors.append((spec, SpecError(told, "name each model once")))
    if len(errors) == 1 and len(specs) == 1:
        raise errors[0][1]
    if errors and all(isinstance(error, EnvironmentNotReadyError) for _, error in errors):
        texts = dict.fromkeys(error.message for _, error in errors)
        raise EnvironmentNotReadyError("\n".join(texts), errors[0][1].hint)
    if errors:
        raise SpecMistakesError([m for spec, error in errors for m in _mistakes(spec, error)])
    return names


def _mistakes(spec: Path, error: TunerError) -> Sequence[Mistake]:
    if isinstance(error, SpecMistakesError):
        return error.mistakes
    return [Mistake(str(spec), 1, 1, "", "; ".join(error.message.splitlines()))]


def _spec_of(series: Series, member: Member, directory: Path) -> Path:
    path = Path(series.choices.directory) / member.spec
    if where := untrusted(path, directory / SERIES):
        told = f"the spec {path} is {where}, and resuming starts what a spec names"
        raise SpecError(told, "look at it with `tune plan`, then start a series of your own")
    return path


def _go_on(directory: Path, series: Series, request: Request, show: Show) -> Series:
    """Runs what has no result yet, and keeps after each how far the series has come."""
    members, stop = list(series.members), Stop(show.note)

    def keep(index: int, member: Member) -> None:
        members[index] = member
        write_series(directory, replace(series, members=tuple(members)))
        show.summarize(directory)

    try:
        with stop.listening():
            for index, member in enumerate(series.members):
                if member.done:
                    continue
                stop.checkpoint()
                show.note(f"{index + 1} of {len(members)}: {member.name}, {member.spec}")
                begun = member.run and (request.output / member.run / MANIFEST).is_file()
                if not begun:
                    member = replace(member, run=new_run_id(member.name))  # noqa: PLW2901
                    keep(index, member)  # so that it is found again, whatever happens
                spec = _spec_of(series, member, directory)
                _run_one(member, replace(request, spec=spec), show, partial(keep, index))
    except InterruptedRunError as error:
        done = sum(member.done for member in members)
        command = resume_command(directory)
        error.hint = f"{done} of {len(members)} are done; go on with: {command}"
        raise
    return replace(series, members=tuple(members))


def _run_one(member: Member, request: Request, show: Show, keep: Callable[[Member], None]) -> None:
    """Begins a run or goes on with it, and keeps how it ended.

    Raises:
        InterruptedRunError: It was stopped, or it ended while a stop was asked for.
    """
    directory = request.output / member.run
    begun = (directory / MANIFEST).is_file()
    stored = RunStore(directory).whole_result() if begun and member.exit_code is None else None
    ended = Status.INTERRUPTED if stored is None else Result.from_json(stored).status
    if ended not in (Status.FAILED, Status.INTERRUPTED):  # killed between its end and this record
        show.report(directory)
        keep(replace(member, status=ended, exit_code=ended.exit_code))
        return
    request = replace(request, resume=directory if begun else None, run_id=member.run)
    with show.events() as events:
        stop = Stop(events.note)
        try:
            ended = run(request, events, show.report, stop).result.status
            member = replace(member, status=ended, exit_code=ended.exit_code, error="")
        except InterruptedRunError as error:
            keep(replace(member, status=Status.INTERRUPTED, exit_code=error.exit_code))
            raise
        except Exception as error:
            code = error.exit_code if isinstance(error, TunerError) else TunerError.exit_code
            told = error.message if isinstance(error, TunerError) else f"a defect: {error!r}"
            member = replace(member, status=Status.FAILED, exit_code=code, error=told)
            show.failed(error)
    keep(member)
    stop.checkpoint()
