"""Generates the commands and exit codes of `docs/cli.md`.

``python -m tuner.cli.reference docs/cli.md`` updates the page; a test compares it.
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
    """``document`` with the text between its two marks generated from the commands."""
    head, _, rest = document.partition(_BEGIN)
    top = click.Context(cli, info_name="tune")
    rows = []
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = click.Context(command, parent=top, info_name=name)
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        said = " ".join((command.help or "").partition("\n\n")[0].split())
        rows.append([f"`{usage}`".replace("|", "\\|"), said])
    codes = [line.split(maxsplit=1) for line in exit_codes_table().splitlines()[2:]]
    commands, exits = _table("command", rows), _table("code", codes)
    parts = [f"{head}{_BEGIN}", commands, "## Exit codes", exits, _END]
    return "\n\n".join(parts) + rest.partition(_END)[2]


def _table(first: str, rows: list[list[str]]) -> str:
    return "\n".join(f"| {a} | {b} |" for a, b in [(first, "meaning"), ("---", "---"), *rows])


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_commands(page.read_text()))
