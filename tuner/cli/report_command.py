"""`tune report`: renders a run again from what is stored."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.completion import RunDirectory
from tuner.cli.terminal import say, say_document, say_json, say_report
from tuner.errors import SpecError, TunerError


@click.command("report")
@click.argument("run", required=False, type=RunDirectory())
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

    if run is None:
        _list_runs(output, output_format)
    elif os.path.lexists(run / CHECK):
        _check(run, output_format)
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


def _say_rendered(run: Path, files: list[Path]) -> None:
    names = ", ".join(str(f.relative_to(run)) for f in files)
    say(f"rendered {names} in {run}", err=True)


def _list_runs(output: Path, output_format: str) -> None:
    from tuner.run.store import MANIFEST

    if output_format not in ("text", "json"):
        raise SpecError("a list of runs is text or json", f"name a run to get its {output_format}")
    runs = sorted(d for d in output.glob("*/") if os.path.lexists(d / MANIFEST))
    rows = [{"run": str(run), "status": _status(run)} for run in runs]
    if output_format == "json":
        say_json(rows)
        return
    for row in rows:
        say(f"{row['status']:<19}  {row['run']}")
    if not rows:
        say(f"no runs under {output}; `tune run SPEC` makes one", err=True)


def _status(run: Path) -> str:
    """How a run or check ended, in a word; for a damaged one, why that is not known."""
    from tuner.run.baseline import CHECK
    from tuner.run.reading import read_json
    from tuner.run.status import CheckStatus, Status
    from tuner.run.store import MANIFEST, RESULT

    kinds = ((RESULT, "", Status), (CHECK, "check: ", CheckStatus))
    try:
        read_json(run / MANIFEST, dict)
        for name, kind, states in kinds:
            facts = read_json(run / name, dict)
            if facts is not None:
                status = facts.get("status")
                known = any(status == state.value for state in states)
                return f"{kind}{status}" if known else f"unreadable: {run / name} has no status"
    except TunerError as error:
        return f"unreadable: {error.message}"
    return "no result yet"
