"""The manifest of a run or a check: what it measures, with what, and for whom."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.bench.job import Job, Request
from tuner.bench.tools import Programs, choose_generator
from tuner.load import seeds
from tuner.modelconfig.content import hashes_of
from tuner.modelconfig.message import to_text
from tuner.record.manifest import Choices, KeptConfig, Manifest
from tuner.record.storage_url import parsed_url, shown_url
from tuner.spec.meaning import files_of


def manifest_of(job: Job, programs: Programs, request: Request, run_id: str) -> Manifest:
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
    """Adds what the server makes of the configs, and the space over that."""
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
    """What a run's manifest keeps of a request."""
    return Choices(
        write=request.write,
        accept_unsoaked=request.accept_unsoaked,
        trials=request.trials,
        time_budget_s=request.time_budget_s,
        storage=None if request.storage is None else shown_url(_rooted(request.storage)),
        directory=str(Path.cwd()),
        overrides=request.overrides,
        on=request.on,
    )


def _rooted(url: str) -> str:
    """A SQLite file by its whole path, so that it is the same from any directory."""
    parsed = parsed_url(url)
    if parsed is None or parsed.get_backend_name() != "sqlite":
        return url  # where it is none, opening it says what is wrong
    if parsed.database in (None, "", ":memory:") or parsed.query:
        return url
    rooted = parsed.set(database=str(Path(parsed.database).absolute()))
    return str(rooted.render_as_string(hide_password=False))
