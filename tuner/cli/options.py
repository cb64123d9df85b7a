"""Options and types that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.completion import RunDirectory, complete_spec


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of options in seconds, written 90, 90s, 30m or 1h."""
    from pydantic import TypeAdapter, ValidationError

    from tuner.spec.units import Seconds

    if value is None:
        return None
    number: str | float = float(value) if value.replace(".", "", 1).isdigit() else value
    try:
        return float(TypeAdapter(Seconds).validate_python(number))
    except ValidationError as error:
        message = f"{value!r}: {error.errors()[0]['msg']}"
        raise click.BadParameter(message, ctx, param) from error


spec_argument = click.argument(
    "spec",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="SPEC",
    shell_complete=complete_spec,
)

run_argument = click.argument("run", type=RunDirectory(), metavar="RUN")

output_format = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What stdout gets.",
)

repository_option = click.option(
    "--repository",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("model_repository"),
    show_default=True,
    help="Model repository that holds MODEL.",
)

results_option = click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    is_eager=True,  # a RUN may be named by its id in there
    help="Directory runs are stored in.",
)

through_links_option = click.option(
    "--through-links",
    is_flag=True,
    help="Also when config.pbtxt is a link to a file outside the repository: that is written.",
)
