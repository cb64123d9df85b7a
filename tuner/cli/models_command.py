"""`tune models`: what is in a model repository, and what of it can be tuned."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.storage import children_environment
from tuner.cli.terminal import say, say_json
from tuner.errors import NothingToSearchError


@click.command("models")
@click.argument("repository", type=click.Path(path_type=Path))
@options.output_format
def command(repository: Path, output_format: str) -> None:
    """List the models of REPOSITORY: backend, versions, batching, and what of each can be tuned.

    What can be tuned is what `tune init` would search on this machine. Starts no server. Exit code
    3 when nothing can be tuned.
    """
    from tuner.programs.models import HEADER, list_models
    from tuner.report.terminal import columns

    rows = list_models(repository, children_environment())
    if output_format == "json":
        say_json([asdict(row) for row in rows])
    else:
        for line in columns([HEADER, *(row.cells() for row in rows)]):
            say(line.removeprefix("  "))
    if not any(row.tunable for row in rows):
        text = f"no model in {repository} can be tuned"
        raise NothingToSearchError(text, f"tune lint {repository} says more about each error")
    say("next:  tune init MODEL", err=True)
