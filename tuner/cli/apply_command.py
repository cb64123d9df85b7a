"""`tune apply`: writes the winner of a finished run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import run_argument, through_links_option
from tuner.cli.terminal import say, say_document
from tuner.errors import TunerError

if TYPE_CHECKING:
    from tuner.run.manifest import Manifest
    from tuner.run.store import RunStore
    from tuner.writeback.apply import Written
    from tuner.writeback.plan import WritePlan


@click.command("apply")
@run_argument
@click.option(
    "--repository",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Model repository to write to, where it is not at the path it had for RUN.",
)
@click.option("--dry-run", is_flag=True, help="Show the diff, check that it fits, write nothing.")
@through_links_option
def command(run: Path, repository: Path | None, dry_run: bool, through_links: bool) -> None:
    """Write the winner of RUN into the model repository, and note that in the run's reports.

    Shows which file it writes and its diff. Refused with exit code 13 when the config changed
    since the run read it. Nothing but a model's config.pbtxt is ever written, whatever RUN says.
    """
    from tuner.modelconfig.files import CONFIG_NAME
    from tuner.run.store import RunStore
    from tuner.writeback.apply import apply, preview
    from tuner.writeback.plan import plan_from_run

    store = RunStore.open(run)
    manifest = store.manifest()
    path = None if repository is None else repository / manifest.name / CONFIG_NAME
    plan = plan_from_run(manifest, _result(store), path)
    looked = preview(plan, through_links=through_links)
    say_document(looked.diff)
    if dry_run:
        say(f"would write: {looked.target.real}", err=True)
        _say_notes(looked.target.notes)
    else:
        written = apply(plan, through_links=through_links)
        say(f"{'written' if written.changed else 'already there'}: {written.real}")
        if written.backup is not None:
            say(f"backup: {written.backup}")
        _say_notes(written.notes)
        _tell_the_run(store, written)
    if plan.server_args:
        say(f"start tritonserver with: {shlex.join(plan.server_args)}", err=True)
    options = ["--repository", str(repository)] if repository else []
    options += ["--through-links"] if through_links else []
    for line in next_lines(run, manifest, plan, options, dry_run=dry_run):
        say(line, err=True)


def _result(store: RunStore) -> dict[str, Any]:
    """Checked as a whole: the run may be somebody else's."""
    from tuner.report.result_schema import check
    from tuner.run.reading import UnreadableFileError
    from tuner.run.store import RESULT

    result = store.result()
    if result is not None and (mistakes := check(result)):
        lines = "".join(f"\n  {mistake}" for mistake in mistakes)
        raise UnreadableFileError(
            f"{store.directory / RESULT} does not follow version 1:{lines}",
            "was it edited, or written by another version of tune?",
        )
    return result or {}


def _say_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note:  {note}", err=True)


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


def next_lines(
    run: Path, manifest: Manifest, plan: WritePlan, options: Sequence[str], *, dry_run: bool
) -> list[str]:
    """What to do after it; ``options`` are those it was called with."""
    if dry_run:
        return [f"next:  {shlex.join(['tune', 'apply', str(run), *options])}"]
    through_links = [option for option in options if option == "--through-links"]
    where = ["--repository", str(plan.path.parent.parent), *through_links]
    undo = ["tune", "rollback", manifest.name, *where]
    check = ["tune", "check", manifest.spec_path or "SPEC", "--update-baseline"]
    return [
        f"undo:  {shlex.join(undo)}",
        f"next:  {shlex.join(check)}   (later checks are compared with what that finds)",
    ]
