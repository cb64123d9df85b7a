"""Commands that read stored runs: `tune report`, `compare` and `size`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.terminal import (
    say,
    say_columns,
    say_document,
    say_json,
    say_lines,
    say_notes,
    say_report,
    width,
)
from tuner.errors import SpecError
from tuner.spec.mistakes import listed, path_meant


@click.command("report")
@click.argument("run", required=False, type=options.RunSeriesOrCheck())
@options.results_option
@options.format_option(
    *("text", "json", "markdown", "pr", "patch"),
    help="What to print on stdout: pr is the text of a pull request with the winner, patch its "
    "diff for git apply. The files of the run are rendered in any case.",
)
@click.option(
    "--why",
    is_flag=True,
    help="Print why RUN chose its config, the effect of each field, and where the time went.",
)
@click.option(
    "--png",
    type=options.FILE,
    metavar="FILE",
    help="Also write the first chart of RUN as a PNG picture, for a slide or a pull request; needs "
    "the extra picture (matplotlib).",
)
def report_command(
    run: Path | None, output: Path, output_format: str, why: bool, png: Path | None
) -> None:
    """Render the reports of RUN again or, without RUN, list all runs, checks and series.

    RUN is the directory of a run, a check or a series, or its id below --output. Works from the
    stored results, even if the run failed or was interrupted.
    """
    from tuner.record.checks import CHECK
    from tuner.record.series import SERIES

    if run is None:
        if why or png is not None:
            raise click.UsageError("--why and --png need RUN: they show one run")
        _list_runs(output, output_format)
        return
    is_check, is_series = os.path.lexists(run / CHECK), os.path.lexists(run / SERIES)
    if png is not None:
        _write_png(run, png, of_a_run=not (is_check or is_series))
    if why:
        _show_why(run, output_format, of_a_run=not (is_check or is_series))
        return
    show = _show_check if is_check else _show_series if is_series else _show_run
    names = listed(f.relative_to(run) for f in show(run, output_format))
    rendered = f"rendered {names}" if names else "there is no manifest.json: no report is rendered"
    say(f"{rendered} in {run}", err=True)


def _show_run(run: Path, output_format: str) -> list[Path]:
    from tuner.record.store import MANIFEST, RunStore
    from tuner.report.blocks import Bullets, Document
    from tuner.report.data import load
    from tuner.report.render import patch_of, pull_request_of, report_run
    from tuner.report.run_document import document
    from tuner.report.sentence import HEADLINES
    from tuner.sentences import sentence

    without = not os.path.lexists(run / MANIFEST) and output_format == "text"
    if without and (result := RunStore(run).result()) is not None:  # such as a sample
        tone, words = HEADLINES[result.status]
        reasons = Bullets("", tuple(map(sentence, result.why)))
        say_report(run, Document(result.model, words, tone, "run", blocks=(reasons,)))
        return []
    store = RunStore.open(run)
    files = report_run(run)
    if output_format == "markdown":
        say_document((run / "report.md").read_text(encoding="utf-8"))
    elif output_format == "pr":
        say_document(pull_request_of(load(run)))
    elif output_format == "patch":
        say_document(patch_of(run))
    elif output_format == "json":
        result = store.result()
        say_json(None if result is None else result.to_json())
    else:
        say_report(run, document(load(run)))
    return files


def _write_png(run: Path, target: Path, *, of_a_run: bool) -> None:
    from tuner.extras import Extra, lacking
    from tuner.report.charts.load import load_charts
    from tuner.report.data import load
    from tuner.report.picture import png
    from tuner.writing import write_bytes

    if missing := lacking(Extra.PICTURE):
        raise missing
    data = load(run) if of_a_run else None
    chart = next(iter(load_charts(data)), None) if data is not None else None
    if data is None or chart is None:
        raise SpecError(f"{run} has no chart of loads", "name a run that measured a config")
    write_bytes(target, png(data, chart))
    say(f"wrote {target}", err=True)


def _show_why(run: Path, output_format: str, *, of_a_run: bool) -> None:
    from tuner.report import markdown, terminal
    from tuner.report.data import load
    from tuner.report.why import document

    if not of_a_run:
        raise SpecError(f"{run} is not the run of one spec", "--why explains a run of `tune run`")
    if output_format not in ("text", "markdown"):
        raise click.UsageError("--why has the formats text and markdown")
    report = document(load(run))
    if output_format == "markdown":
        say_document(markdown.render(report))
        return
    for line in terminal.lines_of(report, width()):
        say_lines(line)


def _show_check(run: Path, output_format: str) -> list[Path]:
    from tuner.cli.check_command import print_check
    from tuner.record.checks import read_check
    from tuner.report.check_document import render_check

    if output_format in ("pr", "patch"):
        raise SpecError(f"{run} is a check, which proposes no config", "name a run of `tune run`")
    files = render_check(run)
    if output_format == "markdown":
        say_document((run / "report.md").read_text(encoding="utf-8"))
    else:
        print_check(run, read_check(run), output_format)
    return files


def _show_series(run: Path, output_format: str) -> list[Path]:
    from tuner.report.listing import document, render_series, summary

    files = render_series(run)
    if output_format == "json":
        say_json(summary(run))
    elif output_format == "text":
        say_report(run, document(run))
    else:
        say_document((run / "report.md").read_text(encoding="utf-8"))
    return files


def _list_runs(output: Path, output_format: str) -> None:
    from tuner.report.listing import HEADER, rows_in

    if output_format not in ("text", "json"):
        raise SpecError(
            "the list of runs has the formats text and json",
            f"name a run to get its {output_format}",
        )
    rows = rows_in(output)
    if output_format == "json":
        say_json([row.to_json() for row in rows])
    elif rows:
        say_columns([HEADER, *(row.cells() for row in rows)])
    else:
        near = "" if os.path.lexists(output) else path_meant(output)
        say(f"no runs under {output}; {near or '`tune run SPEC` makes one'}", err=True)


@click.command("compare")
@click.argument("a", type=options.RunDirectory(), metavar="A")
@click.argument("b", type=options.RunDirectory(), metavar="B")
@options.results_option
@options.format_option("text", "json", "md")
def compare_command(a: Path, b: Path, output: Path, output_format: str) -> None:
    """Show two runs side by side: how they ended, their configs, goodput with its interval.

    A and B are directories of runs, or their ids below --output. Also lists what makes the runs
    incomparable: a different machine, version, workload or SLO.
    """
    del output  # read by the arguments
    from tuner.report import markdown, terminal
    from tuner.report.compare import compared, document

    comparison = compared(a, b)
    if output_format == "json":
        say_json(comparison.to_json())
    elif output_format == "md":
        say_document(markdown.render(document(comparison)))
    else:
        for line in terminal.lines_of(document(comparison), width()):
            say_lines(line)


@click.command("size")
@click.argument("runs", type=options.RunDirectory(), metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--rate",
    type=options.Quantity("Rate"),
    metavar="RATE",
    required=True,
    help="Inferences per second, such as 5000/s.",
)
@click.option(
    "--headroom",
    type=options.Quantity("Percent"),
    metavar="SHARE",
    default="30%",
    show_default=True,
    help="Capacity to add on top of the rate, such as 30% or 0.3.",
)
@click.option(
    "--price",
    "prices",
    type=options.Quantity("Price"),
    metavar="PRICE",
    multiple=True,
    help="Cost of one replica for one hour, such as 2.5/h; repeat for several RUNs, in order.",
)
@options.results_option
@options.output_format
def size_command(
    runs: tuple[Path, ...],
    rate: float,
    headroom: float,
    prices: tuple[float, ...],
    output: Path,
    output_format: str,
) -> None:
    """Compute how many replicas a rate needs with headroom, and when to start another.

    Computed from the load that RUN proved in its soak, on one server: every replica must be like
    the machine of the run. Also shows whether the remaining replicas sustain the rate if one fails.

    Several RUNs of one model, on different machines, are ordered by cost; runs that miss an SLO are
    marked.
    """
    del output  # read by the argument
    from tuner.report.data import load
    from tuner.report.sizing import HEADER, machines, refuse_unlike, size

    if len(prices) not in (0, len(runs)):
        raise click.UsageError(
            f"{len(runs)} RUNs need {len(runs)} prices, in their order, not {len(prices)}"
        )
    if len(runs) > 1:
        data = [load(run) for run in runs]
        refuse_unlike(data)
        sizes = machines(data, rate, headroom, prices or [None] * len(runs))
        if output_format == "json":
            say_json([asdict(machine) for machine in sizes])
        else:
            say_columns([HEADER, *(machine.cells() for machine in sizes)])
        return
    sizing = size(load(runs[0]), rate, headroom, prices[0] if prices else None)
    if output_format == "json":
        say_json(asdict(sizing))
    else:
        say_columns(sizing.rows())
    say_notes(sizing.notes)
