"""`tune rollback`: takes the last write back."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.completion import complete_model
from tuner.cli.options import repository_option


@click.command("rollback")
@click.argument("model", shell_complete=complete_model)
@repository_option
@click.option("--force", is_flag=True, help="Even when the file was changed since tune wrote it.")
def command(model: str, repository: Path, force: bool) -> None:
    """Put back MODEL's config as it was before tune's last write, byte for byte."""
    from tuner.writeback.rollback import rollback

    written = rollback(repository, model, force=force)
    if written.sha256_after is None:
        click.echo(f"removed: {written.path} (there was none before)")
    else:
        click.echo(f"{'restored' if written.changed else 'already back'}: {written.path}")
