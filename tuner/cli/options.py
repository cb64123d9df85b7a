"""Options and types that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from tuner.cli.completion import RunDirectory, complete_spec

F = TypeVar("F", bound=Callable[..., Any])


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of options in seconds, written 90s, 30m or 1h."""
    from tuner.spec.units import Seconds

    try:
        return None if value is None else float(Seconds.of(value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


#: Type of a file, or a directory, that need not be there; and of a directory that must.
FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)
EXISTING_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)

_spec = partial(click.argument, "spec", type=FILE, shell_complete=complete_spec)
spec_argument = _spec(metavar="SPEC")
optional_spec_argument = _spec(required=False)

run_argument = click.argument("run", type=RunDirectory(), metavar="RUN")


def format_option(*formats: str, help: str = "Output format.") -> Callable[[F], F]:  # noqa: A002
    """`--format`, the first of ``formats`` by default."""
    choice = click.Choice(formats)
    return click.option(
        "--format", "output_format", type=choice, default=formats[0], show_default=True, help=help
    )


output_format = format_option("text", "json")
verbose_option = click.option("-v", "--verbose", count=True, help="Show every measurement.")
quiet_option = click.option("-q", "--quiet", count=True, help="Show less.")

results_option = click.option(
    "--output",
    type=DIRECTORY,
    default=Path("results"),
    show_default=True,
    is_eager=True,  # a RUN may be named by its id in there
    help="Directory that runs are stored in.",
)

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set a value of the spec, e.g. budget.trials=3, or 'slo=[p99_latency <= 20ms]'. May be "
    "given several times.",
)

through_links_option = click.option(
    "--through-links",
    is_flag=True,
    help="If config.pbtxt is a link to a file outside the repository, write that file.",
)
