"""`tune run`: the main job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.boundary import show_failure
from tuner.cli.progress import choose_progress, progress_option, shown_events
from tuner.cli.storage import (
    children_environment,
    state_directory,
    storage_of,
    storage_option,
    warn_of_password,
)
from tuner.cli.terminal import append_summary, say, say_json, say_report
from tuner.hiding import hidden_command

if TYPE_CHECKING:
    from tuner.bench.events import Events
    from tuner.bench.job import Request
    from tuner.cli.together import Heard


@click.command("run")
@click.argument(
    "specs", nargs=-1, metavar="[SPEC]...", type=options.FILE, shell_complete=options.complete_spec
)
@click.option("--trials", type=options.WholeNumber(1), help="Maximum number of configs to measure.")
@click.option(
    "--time-budget",
    metavar="TIME",
    type=options.Quantity("Seconds"),
    help="Time for the search, such as 30m; a bare number is in seconds.",
)
@click.option("--seed", type=options.WholeNumber(0), help="Seed of the search.")
@options.results_option
@click.option(
    "--resume",
    metavar="RUN",
    type=options.RunOrSeries(),
    help="Resume an interrupted run, or several that were started together, with their options; "
    "repeat --set and --storage. SPEC is optional if you started the run here, as this user.",
)
@click.option(
    "--more",
    metavar="TIME",
    type=options.Quantity("Seconds"),
    help="With --resume: time for further rounds of a proof that was inconclusive, such as 5m.",
)
@click.option("--no-write", is_flag=True, help="Leave the model repository as it is.")
@click.option(
    "--accept-unsoaked",
    is_flag=True,
    help="Write the winner even if its soak was inconclusive.",
)
@storage_option
@click.option(
    "--on",
    type=click.Choice(["ray"]),
    help="Run several SPECs side by side, each on GPUs and CPUs of its own: of this machine, or of "
    "the Ray cluster that $RAY_ADDRESS names.",
)
@progress_option
@options.verbose_option
@options.quiet_option
@options.overrides_option
@options.output_format
def command(
    specs: tuple[Path, ...],
    trials: int | None,
    time_budget: float | None,
    seed: int | None,
    output: Path,
    resume: Path | None,
    more: float | None,
    no_write: bool,
    accept_unsoaked: bool,
    storage: str | None,
    on: str | None,
    progress: str,
    verbose: int,
    quiet: int,
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Search, prove and write the best config for SPEC.

    Measures the current config and the configs that the search proposes, each on a real
    tritonserver under load. The best ones are measured again beside the current
    config. A winner that proves better is written into the repository, and the old file is kept as
    a backup. The run also stores its proposal as best/proposal.patch and best/pull_request.md.

    Several SPECs, or a pattern in quotes such as 'specs/*.yaml', are run one after the other, or
    side by side with --on, each with the options given. All are checked first. A run that fails
    does not stop the others, and the exit code is the most severe one (order: 130, 1, 4, 2, 3, 5,
    13, 10, 11, 0).
    """
    verbosity = verbose - quiet
    progress = choose_progress(progress, verbosity, *([resume] if resume else specs))
    from tuner.bench.job import Request
    from tuner.cli.together import view_of_several
    from tuner.record.store import SERIES
    from tuner.run.trust import BegunRuns, spec_of

    paths = expanded(specs)
    several = len(paths) > 1 if resume is None else os.path.lexists(resume / SERIES)
    if len(paths) > 1 and not several:
        raise click.UsageError("--resume names one run, which has one SPEC")
    if more is not None and resume is None:
        raise click.UsageError("--more continues a run: name it with --resume RUN")
    if on is not None and not several:
        raise click.UsageError("--on runs several SPECs side by side: name more than one")
    if not paths and resume is None:
        raise click.UsageError("name a SPEC, or a run to resume: --resume RUN")
    state = state_directory(os.environ)
    spec = paths[0] if paths else Path()
    if resume is not None and not paths and not several:
        spec = spec_of(resume, BegunRuns(state))
    request = Request(
        spec=spec,
        output=output,
        resume=resume,
        trials=trials,
        time_budget_s=time_budget,
        seed=seed,
        write=not no_write,
        accept_unsoaked=accept_unsoaked,
        more_s=more,
        storage=storage_of(storage, os.environ),
        overrides=overrides,
        environment=children_environment(),
        command=hidden_command(("tune", *sys.argv[1:])),
        state=state,
        on=on,
        ray=address_of(os.environ),
    )
    show = partial(shown_events, progress, verbosity)
    if several:
        warn_of_password(storage, say)
        together = partial(view_of_several, progress, verbosity)
        return _run_several(paths, request, show, together, output_format, quiet)
    return _run_one(request, show, storage, output_format)


def address_of(environment: Mapping[str, str]) -> str | None:
    """The address of the Ray cluster; None: there is none, and Ray is started here."""
    address = environment.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address


def expanded(specs: Sequence[Path]) -> list[Path]:
    """The specs, with the files that match where one is a pattern; a file's name comes first."""
    found = list[Path]()
    for spec in specs:
        if spec.exists() or not has_magic(str(spec)):
            found.append(spec)
            continue
        matching = sorted(glob(str(spec), recursive=True))  # noqa: PTH207  absolute ones too
        if not matching:
            raise click.UsageError(f"no file matches {str(spec)!r}")
        found += map(Path, matching)
    return found


def _run_one(
    request: Request,
    show: Callable[[], AbstractContextManager[Events]],
    storage: str | None,
    output_format: str,
) -> int:
    with show() as events:
        from tuner.report.data import load
        from tuner.report.render import report_run
        from tuner.report.run_document import document
        from tuner.run.run import run

        warn_of_password(storage, events.note)
        finished = run(request, events, report_run)
    append_summary(finished.directory / "report.md")
    if output_format == "json":
        say_json(finished.result.to_json())
    else:
        say_report(finished.directory, document(load(finished.directory)))
    return finished.result.status.exit_code


def _run_several(
    specs: Sequence[Path],
    request: Request,
    show: Callable[[], AbstractContextManager[Events]],
    together: Callable[[], AbstractContextManager[Heard]],
    output_format: str,
    quiet: int,
) -> int:
    from tuner.record.store import Member
    from tuner.report.listing import ListedRun, document, render_series, summary
    from tuner.report.render import report_run
    from tuner.run.series import Show, run_series

    def note(text: str) -> None:
        if quiet < 2:
            say(text, err=True)

    known = dict[Member, ListedRun]()  # so that a run that has ended is read once
    summarize = partial(render_series, known=known)
    told = Show(show, together, note, show_failure, report_run, summarize)
    directory, series = run_series(specs, request, told)
    append_summary(directory / "report.md")
    if output_format == "json":
        say_json(summary(directory, known))
    else:
        say_report(directory, document(directory, known))
    return series.exit_code
