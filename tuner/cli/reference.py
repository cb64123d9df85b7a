"""The commands, options and exit codes of `docs/cli.md`, made from the commands themselves.

``python -m tuner.cli.reference docs/cli.md`` makes them anew; a test compares them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tuner.cli import COMMANDS, cli
from tuner.cli.boundary import exit_codes_table

_BEGIN = "<!-- commands: made by python -m tuner.cli.reference docs/cli.md -->"
_END = "<!-- end of commands -->"


def with_commands(document: str) -> str:
    """``document`` with the sections between its two marks made anew."""
    head, _, rest = document.partition(_BEGIN)
    top = click.Context(cli, info_name="tune")
    parts = [f"{head}{_BEGIN}", _section(cli, top)]
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        parts.append(_section(command, click.Context(command, parent=top, info_name=name)))
    codes = [line.split(maxsplit=1) for line in exit_codes_table().splitlines()[2:]]
    parts += ["## Exit codes", _table("code", codes), _END]
    return "\n\n".join(parts) + rest.partition(_END)[2]


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    said = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    options = [option for option in command.params if isinstance(option, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    rows = [[f"`{name.replace('|', ', ')}`", " ".join(text.split())] for name, text in records]
    tables = [_table("option", rows)] if rows else []
    return "\n\n".join([f"## `{usage}`", *said, *tables])


def _table(first: str, rows: list[list[str]]) -> str:
    return "\n".join(f"| {a} | {b} |" for a, b in [(first, "meaning"), ("---", "---"), *rows])


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_commands(page.read_text()))
