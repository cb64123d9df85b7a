"""The winner as text, and into the repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TunerError
from tuner.modelconfig.edit import edit, unified_diff
from tuner.modelconfig.encoding import encode
from tuner.run.manifest import Manifest
from tuner.run.result_schema import ChangedConfig
from tuner.space.candidate import Candidate
from tuner.steps.job import Job
from tuner.writeback.plan import WritePlan, apply, file_plans
from tuner.writeback.rollback import half_written, settle_all
from tuner.writeback.target import Written, target_of


@dataclass(frozen=True)
class Change:
    """The winner as text: each config that changes, by label, and the unified diff of them all."""

    configs: Mapping[str, ChangedConfig]
    diff: str


def settle_writes(repository: Path, *, write: bool) -> Iterator[str]:
    """Notes on interrupted writes in the repository, each undone; refused without ``write``.

    Called before any config is read: a run over a half-written winner would measure a config that
    nobody chose.

    Raises:
        StalePlanError: A file was changed since.
        EnvironmentNotReadyError: There is no such repository, or a file may not be written.
    """
    for half in () if write else half_written(repository).values():
        raise half
    for written in settle_all(repository) if write else ():
        yield from written.all_notes


def draw_up(job: Job, winner: Candidate) -> Change:
    """The configs with what the winner needs; everything else byte for byte as it was.

    It is what the server was given for the winner's trials; what is completed is not written.
    """
    configs, diffs = {}, []
    for label in job.searched or job.served.models:
        model = job.served.models[label]
        before = model.files.text
        after = edit(before, model.base.changes(winner.of(label)))
        configs[label] = ChangedConfig(config_before=before, config_after=after)
        diffs.append(unified_diff(before, after, f"{model.name}/{model.files.write_to}"))
    return Change(configs, "".join(diffs))


def best_configs(job: Job, change: Change) -> dict[str, bytes]:
    """The new text of the files that change, by label; all files where none does."""
    changed = {
        la: config for la, config in change.configs.items()
        if config.config_after != config.config_before
    }  # fmt: skip
    return {
        label: encode(config.config_after, job.served.models[label].files.encoding)
        for label, config in (changed or change.configs).items()
    }


def foreseen(job: Job) -> tuple[str, ...]:
    """What the user should know about the files that a winner will be written to."""
    models = [job.served.models[label].files for label in job.searched]
    paths = {m.model: m.directory / m.write_to for m in models}
    try:
        return tuple(note for m, path in paths.items() for note in target_of(path, m).notes)
    except TunerError as error:
        return (f"a winner will not be written: {error.message}",)


def write_back(manifest: Manifest, winner: Candidate, change: Change) -> Written:
    """Replaces the configs atomically, all or none.

    Raises:
        StalePlanError: A file is not the one the run read.
        EnvironmentNotReadyError: One cannot be written, or lies outside the repository.
    """
    kept = manifest.models
    files = [f for la, c in change.configs.items() for f in file_plans(kept[la], c.config_after)]
    return apply(WritePlan(tuple(files), manifest.run_id, winner.server_args))
