"""What a resumed run takes over from its earlier part: options, configs and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from tuner.errors import SpecError
from tuner.machine.cpus import Cores
from tuner.machine.host import Host
from tuner.measurement.measurement import Stage
from tuner.prepare.job import Job, Request
from tuner.prepare.manifest import kept_configs, with_completed
from tuner.record.manifest import Choices, Manifest
from tuner.record.store import RunStore
from tuner.run.trust import refuse_unnamed
from tuner.score.trial import Trial, TrialTime
from tuner.search.estimate import spent_s
from tuner.triton.launchers import cores_of


def restore_choices(request: Request) -> Request:
    """The request with the options of the run to resume; options of the request override them.

    A run that began with `--no-write` never writes.

    Raises:
        SpecError: The directory is not a run, the request has another seed, or `--set` is missing.
    """
    if request.resume is None:
        return request
    manifest = RunStore.open(request.resume).manifest()
    nameless = request.resume.name in ("", "..")
    return replace(
        with_choices(request, request.resume, [request.spec], manifest.choices, manifest.seed),
        resume=request.resume.resolve() if nameless else request.resume,
        output=request.resume.absolute().parent,
    )


def with_choices(
    request: Request, run: Path, specs: Sequence[Path], earlier: Choices, seed: int | None
) -> Request:
    """The request with the earlier options of ``run``; raises as `restore_choices` does."""
    name = run.resolve().name
    if request.seed not in (None, seed):
        raise SpecError(
            f"{name} searches with seed {seed}, not {request.seed}: with another seed, the "
            "trials would not be those of one search",
            "leave --seed out, or start a new run",
        )
    if earlier.overrides and not request.overrides:
        refuse_unnamed(f"{name} was started with --set", run, specs, earlier)
    time_s = request.time_budget_s
    return replace(
        request,
        trials=earlier.trials if request.trials is None else request.trials,
        time_budget_s=earlier.time_budget_s if time_s is None else time_s,
        seed=seed,
        write=request.write and earlier.write,
        accept_unsoaked=request.accept_unsoaked or earlier.accept_unsoaked,
        on=request.on or earlier.on,
        benches=request.benches or earlier.benches,
    )


def refuse_another_start(before: Manifest, job: Job, host: Host | None) -> None:
    """Refuses to resume if spec, configs or machine changed, before any program starts.

    Args:
        host: This machine; None if the run measures elsewhere.
    """
    machine = ""
    if host is not None:
        machine = host.fingerprint(before.versions.get("tritonserver", ""), cores_of(job.spec))
    now = replace(
        before,
        spec_path=str(job.loaded.path),
        choices=replace(before.choices, directory=str(Path.cwd())),
        spec_sha256=job.loaded.sha256,
        models=kept_configs(job),
        fingerprint=machine or before.fingerprint,
    )
    before.refuse_if_different(now)


def resumed_manifest(store: RunStore, before: Manifest, job: Job, cores: Cores | None) -> Manifest:
    """The manifest with the configs as the server completes them; stored if there is no trial yet.

    Raises:
        SpecError: The earlier part of the run had other configs, or was measured in another way.
    """
    manifest = replace(with_completed(before, job), cores=cores)
    before.refuse_if_completed_otherwise(manifest)
    before.refuse_if_measured_otherwise(manifest)
    if not store.trials():
        store.write_manifest(manifest.to_json())
    return manifest


def spent_before(history: Sequence[Trial], store: RunStore) -> dict[str, float]:
    """Seconds of each phase that the trials and the proof of an earlier part spent.

    Trials that were measured in parallel count with their share of the wall time.
    """
    share = spent_s(history) / (sum(t.time.total_s for t in history) or 1.0)
    names = [f.name for f in fields(TrialTime) if f.name != "other_s"]
    carried = {name: share * sum(getattr(t.time, name) for t in history) for name in names}
    again_s = sum(r.wall_s for r in store.rejected() if r.stage is Stage.CONFIRMATION)
    again_s += sum(row.point.measurement.wall_s for row in store.confirmation())
    return {**carried, "measuring_s": carried["measuring_s"] + again_s}
