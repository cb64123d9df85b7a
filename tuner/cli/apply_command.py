"""`tune apply`: writes the winner of a finished run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import run_argument
from tuner.cli.terminal import say, say_document
from tuner.errors import TunerError

if TYPE_CHECKING:
    from tuner.run.manifest import Manifest
    from tuner.run.store import RunStore
    from tuner.writeback.apply import Written


@click.command("apply")
@run_argument
@click.option("--dry-run", is_flag=True, help="Show the diff, check that it fits, write nothing.")
def command(run: Path, dry_run: bool) -> None:
    """Write the winner of RUN into the model repository, and note that in the run's reports.

    Refused with exit code 13 when the config changed since the run read it.
    """
    from tuner.run.store import RunStore
    from tuner.writeback.apply import apply, check_fresh
    from tuner.writeback.plan import plan_from_run

    store = RunStore.open(run)
    manifest = store.manifest()
    plan = plan_from_run(manifest, store.result() or {})
    if dry_run:
        check_fresh(plan)
        say_document(plan.diff())
    else:
        written = apply(plan)
        what = "written" if written.changed else "already there"
        say(f"{what}: {written.path}")
        if written.backup is not None:
            say(f"backup: {written.backup}")
        _tell_the_run(store, written)
    if plan.server_args:
        say(f"start tritonserver with: {shlex.join(plan.server_args)}", err=True)
    for line in next_lines(run, manifest, dry_run=dry_run):
        say(line, err=True)


def _tell_the_run(store: RunStore, written: Written) -> None:
    """The run and its reports say from now on that its winner was written."""
    from tuner.report.pull_request import write_proposal
    from tuner.report.render import render_all

    result = store.result() or {}
    try:
        if written.changed or result.get("written") is None:
            store.write_result({**result, "written": written.to_json()})
        render_all(store.directory, pictures=False)
        write_proposal(store.directory)
    except (OSError, TunerError) as error:
        say(f"the run {store.directory} could not be told of it: {error}", err=True)


def next_lines(run: Path, manifest: Manifest, *, dry_run: bool) -> list[str]:
    """What to do after it."""
    if dry_run:
        return [f"next:  tune apply {shlex.quote(str(run))}"]
    repository = Path(manifest.config_path).parent.parent
    undo = ["tune", "rollback", manifest.model, "--repository", str(repository)]
    check = ["tune", "check", manifest.spec_path or "SPEC", "--update-baseline"]
    return [
        f"undo:  {shlex.join(undo)}",
        f"next:  {shlex.join(check)}   (later checks are compared with what that finds)",
    ]
