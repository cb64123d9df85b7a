"""`tune apply`: writes the winner of a finished run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.terminal import say, say_document, say_notes
from tuner.errors import TunerError

if TYPE_CHECKING:
    from tuner.run.manifest import Manifest
    from tuner.run.store import RunStore
    from tuner.writeback.plan import WritePlan
    from tuner.writeback.target import Written


@click.command("apply")
@options.run_argument
@click.option(
    "--repository",
    type=options.EXISTING_DIRECTORY,
    help="Model repository to write to, if it is no longer at the path that RUN used.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show the diff, check that it applies, write nothing."
)
@options.through_links_option
def command(run: Path, repository: Path | None, dry_run: bool, through_links: bool) -> None:
    """Write the winner of RUN into the model repository, and note that in the run's reports.

    Writes the config of each model that the winner changes, all of them or none, and shows the
    files and their diffs. Refused with exit code 13 if a config changed since the run read it.
    Only a model's config.pbtxt or configs/NAME.pbtxt is ever written, whatever RUN says.
    """
    from tuner.run.store import RunStore
    from tuner.writeback.plan import apply, plan_from_run, preview, refuse_forged

    store = RunStore.open(run)
    manifest = store.manifest()
    result = _result(store)
    plan = plan_from_run(manifest, result, repository)
    looked = preview(plan, through_links=through_links)
    refuse_forged(manifest, result)
    written = None if dry_run else apply(plan, through_links=through_links)
    if written is not None:
        _tell_the_run(store, written)  # before anything is printed: nobody may be reading
    say_document("".join(file.diff for file in looked))
    if written is None:
        for file in looked:
            verb = "would write" if file.changes else "stays as it is"
            say(f"{verb}: {file.target.real}", err=True)
            say_notes(file.target.notes)
    else:
        say_notes(written.notes)
        for done in written.files:
            say(f"{'written' if done.changed else 'already there'}: {done.real}")
            if done.backup is not None:
                say(f"backup: {done.backup}")
            say_notes(done.notes)
    if plan.server_args:
        say(f"start tritonserver with: {shlex.join(plan.server_args)}", err=True)
    options = ["--repository", str(repository)] if repository else []
    options += ["--through-links"] if through_links else []
    for line in next_lines(run, manifest, plan, options, dry_run=dry_run):
        say(line, err=True)


def _result(store: RunStore) -> dict[str, Any]:
    """The run's result. All of it is checked, since the run may be somebody else's."""
    from tuner.run.result_schema import check, not_version_1
    from tuner.run.store import RESULT

    result = store.result()
    if result is not None and (mistakes := check(result)):
        raise not_version_1(store.directory / RESULT, mistakes)
    return result or {}


def _tell_the_run(store: RunStore, written: Written) -> None:
    """Records in the run and its reports that its winner was written."""
    from tuner.report.render import report_run

    result = store.result() or {}
    try:
        if written.changed or result.get("written") is None:
            store.write_result({**result, "written": written.to_json()})
        report_run(store.directory)
    except (OSError, TunerError) as error:
        say(f"this could not be recorded in the run {store.directory}: {error}", err=True)


def next_lines(
    run: Path, manifest: Manifest, plan: WritePlan, options: Sequence[str], *, dry_run: bool
) -> list[str]:
    """What to do next; ``options`` are those that `tune apply` was called with."""
    if dry_run:
        return [f"next:  {shlex.join(['tune', 'apply', str(run), *options])}"]
    through_links = [option for option in options if option == "--through-links"]
    where = ["--repository", str(plan.repository), *through_links]
    model = next((file.model for file in plan.files if file.changes), plan.files[0].model)
    undo = ["tune", "rollback", model, *where]
    check = ["tune", "check", manifest.spec_path or "SPEC", "--update-baseline"]
    return [
        f"undo:  {shlex.join(undo)}",
        f"next:  {shlex.join(check)}   (later checks are compared with its result)",
    ]
