"""The checks of `tune doctor`: whether this machine is ready for runs, or for one spec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.checks.machine import no_gpu_memory
from tuner.checks.parts import models_of, read_models
from tuner.checks.recordings import traffic_of
from tuner.errors import TunerError
from tuner.machine.host import has_gpu
from tuner.modelconfig.served import ServedModel
from tuner.prepare.job import job_from
from tuner.prepare.sharing import room_note
from tuner.spec.arrivals import RecordingArrivals
from tuner.spec.load import LoadedSpec, load_spec
from tuner.spec.model import Spec
from tuner.spec.workload import SharedMemory
from tuner.triton.doctor import MachineCheck, checked, placed, run_checks
from tuner.writeback.repository import half_written
from tuner.writeback.target import write_notes


def readiness(
    spec_path: Path | None,
    environment: Mapping[str, str],
    *,
    results: Path,
    note: Callable[[str], None],
) -> list[MachineCheck]:
    """Checks everything that runs need, in the order of use.

    Args:
        spec_path: Check what this spec needs; None: what the local mode needs.
        results: Directory that runs are stored in.
        note: Receives lines about the download of a server if there is none.

    Raises:
        SpecError: The spec is wrong.
    """
    if spec_path is None:
        return run_checks(environment, results=results, note=note)
    loaded = load_spec(spec_path)
    spec = loaded.spec
    checks = run_checks(
        environment,
        server=spec.server,
        models=partial(_models, loaded),
        perf_analyzer=spec.workload.perf_analyzer,
        repository=spec.repository,
        results=results,
        note=note,
    )
    files = _files_to_write(spec)
    return [
        *(_naming(files, placed(check, loaded)) for check in checks),
        *_half_written(spec),
        *_room_for_inputs(loaded, environment),
        *_recorded(spec),
        *_gpu_memory(spec),
    ]


def _models(loaded: LoadedSpec) -> Iterable[ServedModel]:
    return read_models(loaded).models.values()


def _naming(files: str, check: MachineCheck) -> MachineCheck:
    """Adds the files that a run would write to a successful check of the repository."""
    return replace(check, fix=check.fix or files) if check.id == "repository" else check


def _files_to_write(spec: Spec) -> str:
    with suppress(TunerError):  # `tune plan` reports mistakes of the models
        served = models_of(spec).models
        searched = [label for label, model in spec.models.items() if model.space]
        return "; ".join(write_notes(served[label].files for label in searched))
    return ""


def _half_written(spec: Spec) -> Iterator[MachineCheck]:
    if (half := half_written(spec.repository)) is not None:
        yield MachineCheck("write", "whole configs", False, half.message, half.hint)


def _room_for_inputs(loaded: LoadedSpec, environment: Mapping[str, str]) -> Iterator[MachineCheck]:
    if loaded.spec.workload.shared_memory is not SharedMemory.SYSTEM:
        return
    with suppress(TunerError):  # as above
        models_of(loaded.spec)
        room = partial(room_note, job_from(loaded, loaded.spec, environment))
        inputs = checked("inputs", "room for inputs", room)
        yield from [inputs] if inputs.found else ()


def _recorded(spec: Spec) -> Iterator[MachineCheck]:
    """Checks the recording to replay; `tune plan` also compares it with the models."""

    def look() -> str:
        traffic = traffic_of(spec)
        assert traffic is not None
        return f"{traffic.recording.due_s.size} in {traffic.recording.path}"

    if isinstance(spec.workload.arrivals, RecordingArrivals):
        yield checked("recording", "recorded requests", look)


def _gpu_memory(spec: Spec) -> Iterator[MachineCheck]:
    seen = not spec.server.managed or has_gpu()
    if lacking := no_gpu_memory(spec, seen=seen):
        yield MachineCheck("gpu-memory", "memory of GPUs", False, lacking.message, lacking.hint)
