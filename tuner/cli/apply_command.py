"""`tune apply`: writes the winner of a finished run."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.options import run_argument


@click.command("apply")
@run_argument
@click.option("--dry-run", is_flag=True, help="Show the diff, check that it fits, write nothing.")
def command(run: Path, dry_run: bool) -> None:
    """Write the winner of RUN into the model repository.

    Refused with exit code 13 when the config changed since the run read it.
    """
    from tuner.run.manifest import Manifest
    from tuner.run.store import RunStore
    from tuner.writeback.apply import apply, check_fresh
    from tuner.writeback.plan import plan_from_run

    store = RunStore.open(run)
    plan = plan_from_run(Manifest.from_json(store.manifest()), store.result() or {})
    if dry_run:
        check_fresh(plan)
        click.echo(plan.diff(), nl=False)
    else:
        written = apply(plan)
        what = "written" if written.changed else "already there"
        click.echo(f"{what}: {written.path}")
        if written.backup is not None:
            click.echo(f"backup: {written.backup}")
    if plan.server_args:
        click.echo(f"start tritonserver with: {' '.join(plan.server_args)}", err=True)
