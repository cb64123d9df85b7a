"""`tune run` of several specs, one after the other: what fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tuner.bench.events import Events
from tuner.bench.job import Job, Request
from tuner.bench.manifest import choices_of
from tuner.errors import EnvironmentNotReadyError, InterruptedRunError, SpecError, TunerError
from tuner.machine.host import read_host
from tuner.machine.stop import Stop
from tuner.record.manifest import refuse_changes, resume_command
from tuner.record.result_schema import Result
from tuner.record.status import Status
from tuner.record.store import (
    MANIFEST,
    Member,
    RunStore,
    Series,
    new_run_id,
    read_series,
    write_series,
    written_by_one,
)
from tuner.run.open_run import with_choices
from tuner.run.run import checked_job, run, settled_spec
from tuner.run.trust import BegunRuns, refuse_unnamed, untrusted
from tuner.spec.mistakes import Mistake, SpecMistakesError


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

    ``specs``: of a series that goes on, what is not done of it, or none.

    Raises:
        SpecError: A spec is wrong, or two search one model: all such mistakes, before any run.
            Or the series would be another one now.
        EnvironmentNotReadyError: Something that all of them need is missing.
        InterruptedRunError: Stopped by a signal; the hint goes on with all of it.
    """
    if request.resume is None:
        jobs = checked_jobs(specs, request, show.note)
        directory = request.output / new_run_id("series")
        members = tuple(
            Member(str(path), job.spec.name, spec_sha256=job.loaded.sha256)
            for path, job in zip(specs, jobs, strict=True)
        )
        found = {str(path): path for path in specs}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        choices, machine = choices_of(request), _machine(request)
        write_series(directory, Series(now, choices, request.seed, members, machine))
    else:
        directory = request.resume.resolve()
    with written_by_one(directory):
        series = read_series(directory)
        if request.resume is not None:
            found = _specs_of(series, directory, specs, BegunRuns(request.state))
            waiting = list(found.values())
            chosen = with_choices(request, directory, waiting, series.choices, series.seed)
            request = replace(chosen, resume=None, output=directory.absolute().parent)
            jobs = checked_jobs(waiting, request, show.note)
            before = {m.spec: m.spec_sha256 for m in series.members if m.spec in found}
            after = {name: job.loaded.sha256 for name, job in zip(found, jobs, strict=True)}
            here = _machine(request)
            wrong = [f"{spec} was edited" for spec in before if before[spec] != after.get(spec)]
            if here != series.fingerprint:
                wrong.append(f"machine (fingerprint): {series.fingerprint} then, {here} now")
            refuse_changes(f"series {directory.name}", wrong)
        began = {_spec(series, m): m.spec_sha256 for m in series.members if m.spec in found}
        if failed := BegunRuns(request.state).remember(directory, began):
            show.note(failed)
        return directory, _go_on(directory, series, found, request, show)


def _machine(request: Request) -> str:
    return read_host(request.environment).fingerprint("")


def checked_jobs(specs: Sequence[Path], request: Request, note: Callable[[str], None]) -> list[Job]:
    """The job of each spec, once all of them have been checked, and each model has one."""
    errors = list[tuple[Path, TunerError]]()
    jobs, searched = list[Job](), dict[Path, Path]()
    for spec in specs:
        try:
            own = replace(request, spec=spec)
            job = checked_job(own, settled_spec(own, note))
        except TunerError as error:
            errors.append((spec, error))
            continue
        jobs.append(job)
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
    """The specs to go on with, by what the series calls them; its own only where it is trusted."""
    waiting = [member for member in series.members if not member.done]
    there = {member.spec: _spec(series, member) for member in waiting}
    named = {path.resolve(): path for path in given}
    for member, path in zip(waiting, there.values(), strict=True):
        where = "" if path.resolve() in named else "not named again"
        if not given:
            where = untrusted(directory, path, member.spec_sha256, begun)
        if where:
            left, why = list(there.values()), f"the spec {path} is {where}"
            refuse_unnamed(why, directory, left, series.choices)
    return {name: named.get(path.resolve(), path) for name, path in there.items()}


def _go_on(
    directory: Path, series: Series, specs: Mapping[str, Path], request: Request, show: Show
) -> Series:
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
                own = replace(request, spec=specs[member.spec])
                _run_one(member, own, show, partial(keep, index))
    except InterruptedRunError as error:
        done = sum(member.done for member in members)
        left = [str(specs[member.spec]) for member in members if not member.done]
        command = resume_command(directory, left, choices_of(request))
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
