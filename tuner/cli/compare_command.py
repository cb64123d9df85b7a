"""`tune compare`: two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.completion import RunDirectory
from tuner.cli.terminal import say_document, say_json, say_lines


@click.command("compare")
@click.argument("a", type=RunDirectory(), metavar="A")
@click.argument("b", type=RunDirectory(), metavar="B")
@options.results_option
@options.format_option("text", "json", "md")
def command(a: Path, b: Path, output: Path, output_format: str) -> None:
    """Show two runs side by side: how they ended, their configs, goodput with its interval.

    A and B are directories of runs, or their ids below --output. Names what makes them
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
        for line in terminal.lines_of(document(comparison)):
            say_lines(line)
