"""`tune check`: whether the config in the repository is still good."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.terminal import (
    annotation,
    append_summary,
    say_annotations,
    say_json,
    say_notes,
    say_report,
)
from tuner.cli.ui import choose_ui, progress_option, refuse_two_answers
from tuner.errors import TunerError
from tuner.hiding import hidden_command

if TYPE_CHECKING:
    from tuner.prepare.job import Request
    from tuner.record.checks import CheckFacts


def _metrics_file(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Usage error unless the node exporter would read the file."""
    if file is not None and file.suffix != ".prom":
        text = f"{file} does not end in .prom: the node exporter reads only such files"
        raise click.BadParameter(text, ctx, param)
    return file


@click.command("check")
@options.spec_argument
@click.option(
    "--update-baseline",
    is_flag=True,
    help="Accept this result as the baseline that later checks are compared with; also creates the "
    "first one.",
)
@click.option(
    "--any-machine",
    is_flag=True,
    help="Compare with the accepted result of another machine if this one has none.",
)
@click.option(
    "--metrics",
    type=options.FILE,
    callback=_metrics_file,
    metavar="NAME.prom",
    help="Also write OpenMetrics, for the textfile collector of Prometheus's node exporter.",
)
@options.results_option
@progress_option
@options.quiet_option
@options.overrides_option
@options.output_format
def command(
    spec: Path,
    update_baseline: bool,
    any_machine: bool,
    metrics: Path | None,
    output: Path,
    progress: str,
    quiet: int,
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Measure the config in the repository, and compare it with the last accepted result.

    Measures in rounds on fresh servers, as a run proves its winner. Does not search, and does not
    write to the repository.

    Exit code 0: every SLO is met, and a loss above check.fail is ruled out (a loss above check.warn
    is reported). 10: an SLO is missed. 11: inconclusive, or no accepted result to compare with:
    that is not a pass. 12: a regression, or the load that the config is credited with is no longer
    sustained. All results are stored before the exit code is decided.
    """
    refuse_two_answers(progress, output_format)
    ui = choose_ui(progress, -quiet, spec)
    from tuner.prepare.job import Request

    request = Request(
        spec=spec,
        output=output,
        overrides=overrides,
        environment=dict(os.environ),
        command=hidden_command(("tune", *sys.argv[1:])),
    )
    made: list[Path] = []

    def report(directory: Path) -> None:
        from tuner.report.check_document import render_check

        made.append(directory)
        render_check(directory)

    code = TunerError.exit_code
    try:
        with ui.run(details=True) as events:
            from tuner.check.check import check

            facts = check(request, events, report, accept=update_baseline, any_machine=any_machine)
        if not ui.prints_json:
            print_check(made[-1], facts, output_format)
        append_summary(made[-1] / "report.md")
        say_annotations(annotation_lines(facts))
        code = facts.exit_code
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", code)
        raise
    finally:
        if metrics is not None:
            export(request, made, code, metrics)
    return code


def export(request: Request, made: list[Path], code: int, metrics: Path) -> None:
    """Writes the metrics, with the exit code of the process; a failure to write is only a note."""
    from tuner.record.checks import read_check
    from tuner.report import check_document as document
    from tuner.spec.load import load_spec
    from tuner.writing import write_text

    facts, model = None, ""
    with suppress(TunerError):
        if made:
            facts = read_check(made[0])
        else:
            model = load_spec(request.spec, request.overrides).spec.name
    if facts is None:
        text = document.exit_code_metric(model, str(request.spec), code)
    else:
        facts = facts.model_copy(update={"exit_code": code})
        text = document.open_metrics(facts)
    try:
        write_text(metrics, text)
    except TunerError as error:
        say_notes([error.message])
        say_annotations([annotation("warning", error.message, title="tune check")])


def print_check(directory: Path, facts: CheckFacts, output_format: str) -> None:
    """Prints a check on stdout."""
    if output_format == "json":
        say_json(facts.to_json())
        return
    from tuner.report.check_document import document

    say_report(directory, document(facts))


def annotation_lines(facts: CheckFacts) -> list[str]:
    """An annotation at the spec's first line if the check failed or has a warning; else none."""
    if not facts.exit_code and facts.status.value != "worse":
        return []
    level = "error" if facts.exit_code else "warning"
    title = f"tune check: {facts.status.value}"
    return [
        annotation(level, " ".join(facts.reasons), title=title, file=facts.spec_path, line=1),
    ]
