"""`tune report`: renders a run again from what is stored."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.completion import RunOrSeries
from tuner.cli.terminal import say, say_document, say_json, say_report
from tuner.errors import SpecError


@click.command("report")
@click.argument("run", required=False, type=RunOrSeries())
@options.results_option
@options.format_option(
    *("text", "json", "markdown", "pr", "patch"),
    help="What to print on stdout: pr is the text of a pull request with the winner, patch its "
    "diff for git apply. The files of the run are rendered in any case.",
)
def command(run: Path | None, output: Path, output_format: str) -> None:
    """Render the reports of RUN again or, without RUN, list all runs and checks.

    RUN is a directory, or an id below --output. Works from the stored results, even if the run
    failed or was interrupted. RUN may also be a check.
    """
    from tuner.run.baseline import CHECK
    from tuner.run.series import SERIES

    if run is None:
        _list_runs(output, output_format)
    elif os.path.lexists(run / CHECK):
        _check(run, output_format)
    elif os.path.lexists(run / SERIES):
        _series(run, output_format)
    else:
        _run(run, output_format)


def _run(run: Path, output_format: str) -> None:
    from tuner.report.data import load
    from tuner.report.pull_request import patch_of, pull_request_of
    from tuner.report.render import report_run
    from tuner.report.run_document import document
    from tuner.run.store import RunStore

    store = RunStore.open(run)
    files = report_run(run)
    if output_format == "markdown":
        say_document((run / "report.md").read_text(encoding="utf-8"))
    elif output_format == "pr":
        say_document(pull_request_of(load(run)))
    elif output_format == "patch":
        say_document(patch_of(run))
    elif output_format == "json":
        say_json(store.result())
    else:
        say_report(run, document(load(run)))
    _say_rendered(run, files)


def _check(run: Path, output_format: str) -> None:
    from tuner.cli.check_command import print_check
    from tuner.report.check_document import render_check
    from tuner.run.check_schema import read_check

    if output_format in ("pr", "patch"):
        raise SpecError(f"{run} is a check: it proposes nothing", "name a run of `tune run`")
    files = render_check(run)
    if output_format == "markdown":
        say_document((run / "report.md").read_text(encoding="utf-8"))
    else:
        print_check(run, read_check(run), output_format)
    _say_rendered(run, files)


def _series(run: Path, output_format: str) -> None:
    from tuner.report.series_document import document, render_series, summary

    files = render_series(run)
    if output_format == "json":
        say_json(summary(run))
    elif output_format == "text":
        say_report(run, document(run))
    else:
        say_document((run / "report.md").read_text(encoding="utf-8"))
    _say_rendered(run, files)


def _say_rendered(run: Path, files: list[Path]) -> None:
    names = ", ".join(str(f.relative_to(run)) for f in files)
    say(f"rendered {names} in {run}", err=True)


def _list_runs(output: Path, output_format: str) -> None:
    from tuner.report.listing import HEADER, rows_in
    from tuner.report.terminal import columns

    if output_format not in ("text", "json"):
        raise SpecError("a list of runs is text or json", f"name a run to get its {output_format}")
    rows = rows_in(output)
    if output_format == "json":
        say_json([row.to_json() for row in rows])
    elif rows:
        for line in columns([HEADER, *(row.cells() for row in rows)]):
            say(line.removeprefix("  "))
    else:
        say(f"no runs under {output}; `tune run SPEC` makes one", err=True)
