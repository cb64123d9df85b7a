"""Commands that change a model repository: `tune apply` and `tune rollback`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.terminal import say, say_document, say_lines, say_notes
from tuner.errors import SpecError, TunerError

if TYPE_CHECKING:
    from tuner.record.manifest import Manifest
    from tuner.record.store import RunStore
    from tuner.writeback.plan import WritePlan
    from tuner.writeback.target import Written, WrittenFile

_IGNORED = (
    "git:   add .tune.journal and .*.pbtxt.tune.* to .gitignore; tune rollback needs these files"
)


@click.command("apply")
@options.run_argument
@options.optional_spec_argument
@options.repository_option(
    "Model repository to write to, if it is no longer at the path that RUN used."
)
@click.option(
    "--dry-run", is_flag=True, help="Show the diff and check that it applies; write nothing."
)
@click.option(
    "--by-load",
    is_flag=True,
    help="Instead, write the best config for 20, 50 and 100% of the proved load, as "
    "configs/load-20.pbtxt and so on; tritonserver --model-config-name=load-20 reads it.",
)
@options.through_links_option
def apply_command(
    run: Path,
    spec: Path | None,
    repository: Path | None,
    dry_run: bool,
    by_load: bool,
    through_links: bool,
) -> None:
    """Write the winner of RUN into the model repository, and note that in the run's reports.

    Writes the config of each model that the winner changes, all of them or none, and shows the
    files and their diffs. Refused with exit code 13 if a config changed since the run read it.
    Writes only a model's config.pbtxt or configs/NAME.pbtxt, whatever RUN says. A field that can
    select the code that a model runs is written only with a value that SPEC searches; by default,
    SPEC is the spec of a RUN that you began.
    """
    from tuner.record.store import RunStore
    from tuner.run.trust import BegunRuns, spec_of, state_directory
    from tuner.space.environment import places
    from tuner.spec.load import load_spec
    from tuner.writeback.apply import apply
    from tuner.writeback.plan import plan_from_run, refuse_forged

    store = RunStore.open(run)
    manifest = store.manifest()
    result = store.result()
    if by_load:
        _apply_by_load(store, spec, repository, dry_run=dry_run, through_links=through_links)
        return
    plan = plan_from_run(manifest, result, repository)
    looked = apply(plan, through_links=through_links, dry_run=True)
    begun = BegunRuns(state_directory(os.environ))
    assert result is not None  # the plan is made from it
    refuse_forged(manifest, result, lambda: load_spec(spec or spec_of(run, begun)).spec)
    written = looked if dry_run else apply(plan, through_links=through_links)
    if not dry_run:
        _record_write(store, written)  # before printing, which fails if the reader is gone
    say_document("".join(file.diff for file in written.files))
    say_notes(written.notes)
    for file in written.files:
        say(_written_line(file, dry_run=dry_run), err=dry_run)
        if file.backup is not None:
            say(f"backup: {file.backup}")
        say_notes(file.notes)
    if plan.server_args:
        say(f"start tritonserver with: {shlex.join(plan.server_args)}", err=True)
    if plan.environment:
        say("start tritonserver with these variables in its environment:", err=True)
        say_lines("\n".join(f"  {place}" for place in places(plan.environment)), err=True)
    if any(file.backup for file in written.files):
        say(_IGNORED, err=True)
    options = [str(spec)] if spec else []
    options += ["--repository", str(repository)] if repository else []
    options += ["--through-links"] if through_links else []
    for line in next_lines(run, manifest, plan, options, dry_run=dry_run):
        say(line, err=True)


def _apply_by_load(
    store: RunStore,
    spec: Path | None,
    repository: Path | None,
    *,
    dry_run: bool,
    through_links: bool,
) -> None:
    """Writes a config for each share of the proved load beside the model's own config."""
    from tuner.report.by_load import by_load
    from tuner.report.data import load
    from tuner.run.trust import BegunRuns, spec_of, state_directory
    from tuner.spec.load import load_spec
    from tuner.writeback.apply import apply
    from tuner.writeback.plan import plan_by_load

    loads = by_load(load(store.directory))
    if not loads:
        raise SpecError(
            f"run {store.run_id} proved no load", f"`tune report {store.run_id}` says why"
        )
    begun = BegunRuns(state_directory(os.environ))
    configs = {entry.name: entry.candidate for entry in loads}
    plan = plan_by_load(
        store.manifest(),
        configs,
        lambda: load_spec(spec or spec_of(store.directory, begun)).spec,
        repository,
    )
    written = apply(plan, through_links=through_links, dry_run=dry_run)
    for file in written.files:
        say(_written_line(file, dry_run=dry_run), err=dry_run)
    compared = (loads[-1].candidate, store.manifest().current)
    if apart := [entry.name for entry in loads if entry.candidate not in compared]:
        say_notes([f"answers not compared with the current config's: {', '.join(apart)}"])
    for entry in loads:
        if entry.candidate.server_args:
            say(f"{entry.name}: start tritonserver with {shlex.join(entry.candidate.server_args)}")


def _written_line(file: WrittenFile, *, dry_run: bool) -> str:
    changes, stays = ("would write", "stays as it is") if dry_run else ("written", "already there")
    return f"{changes if file.changed else stays}: {file.real}"


def _record_write(store: RunStore, written: Written) -> None:
    """Records in the run and its reports that the winner was written."""
    from tuner.report.render import report_run

    try:
        result = store.result()
        if written.changed or result is None or result.written is None:
            store.add_written(written.facts)
        report_run(store.directory)
    except (OSError, TunerError) as error:
        say(f"cannot record the write in the run {store.directory}: {error}", err=True)


def next_lines(
    run: Path, manifest: Manifest, plan: WritePlan, options: Sequence[str], *, dry_run: bool
) -> list[str]:
    """The next commands; ``options``: the options of this `tune apply`."""
    from tuner.record.manifest import check_command, check_options

    if dry_run:
        return [f"next:  {shlex.join(['tune', 'apply', str(run), *options])}"]
    through_links = [option for option in options if option == "--through-links"]
    where = ["--repository", str(plan.repository), *through_links]
    changed = [file.model for file in plan.files if file.changes] or [plan.files[0].model]
    undo = shlex.join(["tune", "rollback", changed[0], *where])
    undo += f"   (restores all {len(changed)} configs)" if len(changed) > 1 else ""
    again = check_options(manifest.choices, run.parent)
    check = check_command(manifest.spec_path, again, "--update-baseline")
    return [
        f"undo:  {undo}",
        f"next:  {check}   (later checks are compared with its result)",
    ]


@click.command("rollback")
@click.argument("model", metavar="MODEL|RUN", shell_complete=options.complete_model_or_run)
@options.repository_option(
    "Model repository; by default model_repository, or the repository of RUN if the current "
    "directory is in it or contains it."
)
@options.results_option
@click.option(
    "--force", is_flag=True, help="Restore the config even if it was changed since tune wrote it."
)
@click.option("--dry-run", is_flag=True, help="Show the diff, write nothing.")
@options.through_links_option
def rollback_command(
    model: str,
    repository: Path | None,
    output: Path,
    force: bool,
    dry_run: bool,
    through_links: bool,
) -> None:
    """Restore MODEL's config from before tune's last write, byte for byte; show the diff.

    RUN is a directory, or an id below --output; its write must be the last one. Configs that were
    written together are restored together: those of all models that the run changed, or none if one
    of them has changed since. MODEL may also be an ensemble of these models. Only the last complete
    write is undone, however often the command runs. If a model has several configs (`write_to`),
    the one that was written last is restored. To go back further by hand, use the backups beside
    the config, .config.pbtxt.tune.*.bak: the newest 20, and every config that tune did not write.

    If the run of the write is below --output, its reports are rendered again.

    If RUN was killed while it used a remote server, the command restores the configs of that server
    instead, as they were before RUN.
    """
    from tuner.record.store import MANIFEST
    from tuner.triton.remote import INITIAL_CONFIGS
    from tuner.writeback.rollback import rollback

    run = next((d for d in (Path(model), output / model) if os.access(d / MANIFEST, os.F_OK)), None)
    if run is not None and os.path.lexists(run / "logs" / INITIAL_CONFIGS):
        from tuner.run.repair import put_back
        from tuner.run.trust import BegunRuns, state_directory

        begun = BegunRuns(state_directory(os.environ))
        where = put_back(run, begun, dict(os.environ), dry_run=dry_run)
        say(f"{'would restore' if dry_run else 'restored'}: {where}", err=dry_run)
        return
    run_id = None
    if run is not None:
        repository, model, run_id = _written_by(run, repository)
    written = rollback(
        repository or options.default_repository(f"rollback {shlex.quote(model)}"),
        model,
        run_id=run_id,
        force=force,
        through_links=through_links,
        dry_run=dry_run,
    )
    say_document("".join(file.diff for file in written.files))
    say_notes(written.notes)
    for file in written.files:
        say(_restored_line(file, dry_run=dry_run), err=dry_run)
        if force and file.backup is not None:
            say(f"backup: {file.backup}")
        say_notes(file.notes)
    if len(written.files) > 1:
        say_notes([f"run {written.run_id} wrote these {len(written.files)} configs together"])
    if dry_run:
        say("next:  repeat the command without --dry-run", err=True)
    else:
        _render_again(run or output / written.run_id)


def _restored_line(file: WrittenFile, *, dry_run: bool) -> str:
    if not file.changed:
        return f"already restored: {file.real}"
    none, would = file.sha256_after is None, "would " if dry_run else ""
    verb = ("remove" if none else "restore") + ("" if dry_run else "d")
    return f"{would}{verb}: {file.real}{' (no config existed before)' if none else ''}"


def _written_by(run: Path, repository: Path | None) -> tuple[Path, str, str]:
    """The repository that a run wrote into, a model whose config it changed, and the run's id.

    Raises:
        SpecError: No option names the repository, and the current directory is neither in it nor
            above it: the run may be a copy of another user's.
    """
    from tuner.record.store import RunStore
    from tuner.writeback.plan import plan_from_run

    store = RunStore.open(run)
    manifest = store.manifest()
    plan = plan_from_run(manifest, store.result(), repository)
    model = next((file.model for file in plan.files if file.changes), plan.files[0].model)
    here, there = Path.cwd(), plan.repository.resolve()
    if repository is None and not (here.is_relative_to(there) or there.is_relative_to(here)):
        raise SpecError(
            f"run {manifest.run_id} wrote to {plan.repository}, which neither contains this "
            "directory nor is below it; nothing was restored",
            f"to restore it anyway: tune rollback {shlex.quote(str(run))} --repository "
            f"{shlex.quote(str(plan.repository))}",
        )
    return plan.repository, model, manifest.run_id


def _render_again(run: Path) -> None:
    """Renders the reports again: they show whether the winner is in the repository now."""
    from tuner.record.store import RESULT
    from tuner.report.render import report_run

    why = "there is no such run"
    try:
        if (run / RESULT).is_file():
            report_run(run)
            return
    except (OSError, TunerError) as error:
        why = str(error)
    say(f"cannot render the reports of {run} again: {why}", err=True)
    say("next:  tune report RUN   (the reports still say that the winner is written)", err=True)
