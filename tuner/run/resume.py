"""What a run that is resumed takes over from its earlier part: choices, trials and seconds."""

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
    """The request completed with the options of the run to resume; options given again override.

    A run that was not to write the repository never does.

    Raises:
        SpecError: It is not a run, another seed is given, or what may choose code or a place is
            not given again.
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
    """What was chosen earlier for ``run``, unless it is given again; raises SpecError as above."""
    name = run.resolve().name
    if request.seed not in (None, seed):
        raise SpecError(
            f"{name} searches with seed {seed}, not {request.seed}: another "
            "seed makes another experiment",
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


def refuse_another_start(run: Path, job: Job, host: Host | None) -> None:
    """Refuses, before any program is started, where a run's spec, configs or machine changed.

    ``host``: None where it is measured elsewhere.
    """
    before, machine = RunStore.open(run).manifest(), ""
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


def resumed_manifest(store: RunStore, job: Job, cores: Cores | None) -> Manifest:
    """The manifest with the configs as the server completes them; kept where no trial was made.

    Raises:
        SpecError: An earlier part of the run had other configs, or was measured otherwise.
    """
    before = store.manifest()
    manifest = replace(with_completed(before, job), cores=cores)
    before.refuse_if_completed_otherwise(manifest)
    before.refuse_if_measured_otherwise(manifest)
    if not store.trials():
        store.write_manifest(manifest.to_json())
    return manifest


def spent_before(history: Sequence[Trial], store: RunStore) -> dict[str, float]:
    """Seconds an earlier part of the run spent: its trials and its proof.

    Trials that were measured side by side cost it less than they took.
    """
    share = spent_s(history) / (sum(t.time.total_s for t in history) or 1.0)
    names = [f.name for f in fields(TrialTime) if f.name != "other_s"]
    carried = {name: share * sum(getattr(t.time, name) for t in history) for name in names}
    again_s = sum(r.wall_s for r in store.rejected() if r.stage is Stage.CONFIRMATION)
    again_s += sum(row.point.measurement.wall_s for row in store.confirmation())
    return {**carried, "measuring_s": carried["measuring_s"] + again_s}
