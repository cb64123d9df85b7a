"""Makes the manifest of a run or a check from its job, its programs and its request."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from tuner.load import seeds
from tuner.machine.host import Host
from tuner.modelconfig.content import hashes_of
from tuner.modelconfig.message import to_text
from tuner.prepare.job import Job, Request
from tuner.prepare.tools import choose_generator
from tuner.record.manifest import Choices, KeptConfig, Manifest
from tuner.spec.files import files_of


class ProgramFacts(Protocol):
    """Facts about the programs for the manifest; a bench may have them on another machine."""

    @property
    def host(self) -> Host: ...

    def versions(self) -> dict[str, str]: ...

    def fingerprint(self) -> str: ...


def manifest_of(job: Job, programs: ProgramFacts, request: Request, run_id: str) -> Manifest:
    host = programs.host.to_json()
    gpus = host.pop("gpus")
    return Manifest(
        run_id=run_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        spec_path=str(job.loaded.path),
        spec_text=job.loaded.text,
        spec_sha256=job.loaded.sha256,
        spec=job.spec.plain(),
        name=job.spec.name,
        seed=job.spec.search.seed,
        models=kept_configs(job),
        streams={name: stream.model for name, stream in job.spec.streams.items()},
        versions=programs.versions(),
        host=host,
        gpus=gpus,
        fingerprint=programs.fingerprint(),
        command=list(request.command),
        space_size=job.space.size().count,
        current=job.space.current,
        choices=choices_of(request),
        arrivals=seeds.of_confirmation(run_id),
        load_files=hashes_of(files_of(job.spec)),
    )


def kept_configs(job: Job) -> dict[str, KeptConfig]:
    return {
        label: KeptConfig(
            *(m.name, str(m.files.path), m.files.text, m.files.sha256, m.files.encoding),
            parts=m.parts,
            write_to=m.files.write_to,
        )
        for label, m in job.served.models.items()
    }


def with_completed(manifest: Manifest, job: Job) -> Manifest:
    """The manifest with the configs as the server completes them, and their space."""
    bases = {label: model.base for label, model in job.served.models.items()}
    models = {
        label: replace(
            kept,
            completed=to_text(bases[label].completed),
            overridden=tuple(sorted(bases[label].overridden)),
        )
        for label, kept in kept_configs(job).items()
    }
    return replace(
        manifest,
        space_size=job.space.size().count,
        current=job.space.current,
        models=models,
        client=choose_generator(job).kind.name,
    )


def choices_of(request: Request) -> Choices:
    """The options of a request that the manifest keeps."""
    return Choices(
        write=request.write,
        accept_unsoaked=request.accept_unsoaked,
        trials=request.trials,
        time_budget_s=request.time_budget_s,
        directory=str(Path.cwd()),
        overrides=request.overrides,
        on=request.on,
        benches=request.benches,
    )
