"""`tune completion`: what a shell needs to complete commands, options, specs and runs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tuner.cli.terminal import say_lines


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL, for its start-up file."""
    script = get_completion_class(shell)
    assert script is not None
    say_lines(script(ctx.find_root().command, {}, "tune", "_TUNE_COMPLETE").source())
