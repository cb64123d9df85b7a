"""`tune rollback`: takes the last write back."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.completion import complete_model
from tuner.cli.terminal import say, say_notes
from tuner.errors import TunerError


@click.command("rollback")
@click.argument("model", metavar="MODEL|RUN", shell_complete=complete_model)
@click.option(
    "--repository",
    type=options.EXISTING_DIRECTORY,
    help="Model repository; by default model_repository, or the one that RUN read.",
)
@options.results_option
@click.option(
    "--force", is_flag=True, help="Restore the config even if it was changed since tune wrote it."
)
@options.through_links_option
def command(
    model: str, repository: Path | None, output: Path, force: bool, through_links: bool
) -> None:
    """Put back MODEL's config as it was before tune's last write, byte for byte.

    RUN is a directory, or an id below --output; its write must be the last one. Configs that were
    written together are taken back together: those of all models that the run changed, or none if
    one of them was changed since. MODEL may also be an ensemble of these models. Only the last
    write is taken back, however often this is called; if a crash cut it short, the write before
    it. Of a model with several configs (`write_to`), the one last written is meant. To go back
    further by hand, use the backups beside the config, .config.pbtxt.tune.*.bak: the newest 20, and
    every config that tune did not write itself.

    If the run that made the write is below --output, its reports are rendered again.
    """
    from tuner.run.store import MANIFEST
    from tuner.writeback.rollback import rollback

    run = next((d for d in (Path(model), output / model) if os.access(d / MANIFEST, os.F_OK)), None)
    run_id = None
    if run is not None:
        repository, model, run_id = _written_by(run, repository)
    written = rollback(
        repository or Path("model_repository"),
        model,
        run_id=run_id,
        force=force,
        through_links=through_links,
    )
    say_notes(written.notes)
    for file in written.files:
        if file.sha256_after is None:
            say(f"removed: {file.real} (there was none before)")
        else:
            say(f"{'restored' if file.changed else 'already back'}: {file.real}")
        say_notes(file.notes)
    _render_again(run or output / written.run_id)


def _written_by(run: Path, repository: Path | None) -> tuple[Path, str, str]:
    """The repository that a run wrote into, a model whose config it changed, and the run's id."""
    from tuner.run.store import RunStore
    from tuner.writeback.plan import plan_from_run

    store = RunStore.open(run)
    manifest = store.manifest()
    plan = plan_from_run(manifest, store.result() or {}, repository)
    model = next((file.model for file in plan.files if file.changes), plan.files[0].model)
    return plan.repository, model, manifest.run_id


def _render_again(run: Path) -> None:
    """Renders the reports again: they show whether the winner is in the repository now."""
    from tuner.report.render import report_run
    from tuner.run.store import RESULT

    why = "the run is not there"
    try:
        if (run / RESULT).is_file():
            report_run(run)
            return
    except (OSError, TunerError) as error:
        why = str(error)
    say(f"the reports of {run} could not be rendered again: {why}", err=True)
    say("next:  tune report RUN   (its reports still say that its winner is written)", err=True)
