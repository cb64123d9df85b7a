"""`tune run`: the main job."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.completion import RunDirectory
from tuner.cli.console import PlainEvents
from tuner.cli.github import append_summary
from tuner.cli.storage import children_environment, storage_of, storage_option, warn_of_password
from tuner.cli.terminal import say_json, say_report
from tuner.hiding import hidden_command
from tuner.steps.events import Events, Silent


@click.command("run")
@options.optional_spec_argument
@click.option("--trials", type=click.IntRange(min=1), help="Configs to measure at most.")
@click.option(
    "--time-budget",
    metavar="TIME",
    callback=options.duration,
    help="Time for the search, e.g. 30m.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the search.")
@options.results_option
@click.option(
    "--resume",
    metavar="RUN",
    type=RunDirectory(),
    help="Resume an interrupted run with the options it was started with; SPEC may be left out.",
)
@click.option("--no-write", is_flag=True, help="Leave the model repository as it is.")
@click.option(
    "--accept-unsoaked",
    is_flag=True,
    help="Also write a winner of which no soak could tell whether its load lasts.",
)
@storage_option
@click.option(
    "--progress",
    type=click.Choice(["auto", "live", "plain", "none"]),
    default="auto",
    show_default=True,
    help="How to show progress.",
)
@options.verbose_option
@options.quiet_option
@options.overrides_option
@options.output_format
def command(
    spec: Path | None,
    trials: int | None,
    time_budget: float | None,
    seed: int | None,
    output: Path,
    resume: Path | None,
    no_write: bool,
    accept_unsoaked: bool,
    storage: str | None,
    progress: str,
    verbose: int,
    quiet: int,
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Search, prove and write the best config for SPEC.

    Measures the current config and the configs that the search proposes, each on a real
    tritonserver under perf_analyzer's load. The best ones are measured again beside the current
    config. A winner that proves better is written into the repository, and the old file is kept as
    a backup. The run also stores its proposal as best/proposal.patch and best/pull_request.md.
    """
    from tuner.programs.run.resuming import spec_of
    from tuner.programs.run.run import run
    from tuner.report.data import load
    from tuner.report.render import report_run
    from tuner.report.run_document import document
    from tuner.steps.job import Request

    if spec is None:
        if resume is None:
            raise click.UsageError("name a SPEC, or a run to resume: --resume RUN")
        spec = spec_of(resume)
    request = Request(
        spec=spec,
        output=output,
        resume=resume,
        trials=trials,
        time_budget_s=time_budget,
        seed=seed,
        write=not no_write,
        accept_unsoaked=accept_unsoaked,
        storage=storage_of(storage, os.environ),
        overrides=overrides,
        environment=children_environment(),
        command=hidden_command(("tune", *sys.argv[1:])),
    )
    with _events(progress, verbose - quiet) as events:
        warn_of_password(storage, events.note)
        finished = run(request, events, report_run)
    append_summary(finished.directory / "report.md")
    if output_format == "json":
        say_json(finished.result.to_json())
    else:
        say_report(finished.directory, document(load(finished.directory)))
    return finished.result.status.exit_code


def _events(progress: str, verbosity: int) -> AbstractContextManager[Events]:
    if progress == "auto":
        plain = not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("TERM") == "dumb"
        progress = "plain" if plain or verbosity > 0 else "live"
    if progress == "live":
        from tuner.cli.live import LiveEvents

        return LiveEvents(no_color=click.get_current_context().color is False)
    return nullcontext(Silent()) if progress == "none" else PlainEvents(verbosity)
