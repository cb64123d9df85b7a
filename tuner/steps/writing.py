"""The winner as text, and into the repository."""

from __future__ import annotations

from tuner.errors import TunerError
from tuner.modelconfig.edit import edit, unified_diff
from tuner.report.result_schema import ChangedConfig
from tuner.run.manifest import Manifest
from tuner.space.candidate import Candidate
from tuner.steps.job import Job
from tuner.steps.outcome import Change
from tuner.writeback.apply import Written, apply
from tuner.writeback.plan import WritePlan
from tuner.writeback.target import target_of


def draw_up(job: Job, winner: Candidate) -> Change:
    """The config with what the winner needs; everything else byte for byte as it was.

    It is what the server was given for the winner's trials; what is completed is not written.
    """
    after = edit(job.model.text, job.space.config.changes(winner.of("")))
    name = f"{job.spec.the_one.name}/config.pbtxt"
    changed = ChangedConfig(config_before=job.model.text, config_after=after)
    return Change({"": changed}, unified_diff(job.model.text, after, name))


def foreseen(job: Job) -> tuple[str, ...]:
    """What whoever starts the run should know of the file that a winner will be written to."""
    try:
        return target_of(job.model.path, job.spec.the_one.name).notes
    except TunerError as error:
        return (f"a winner will not be written: {error.message}",)


def write_back(manifest: Manifest, job: Job, winner: Candidate, change: Change) -> Written:
    """Replaces the config atomically.

    Raises:
        StalePlanError: The file is not the one the run read.
        EnvironmentNotReadyError: It cannot be written, or lies outside the repository.
    """
    return apply(
        WritePlan(
            model=job.spec.the_one.name,
            path=job.model.path,
            sha256_before=manifest.models[""].sha256,
            text_before=job.model.text if job.model.exists else None,
            text_after=change.configs[""].config_after,
            server_args=winner.server_args,
            run_id=manifest.run_id,
            encoding=job.model.encoding,
        )
    )
