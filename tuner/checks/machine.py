"""What a spec asks of the machine and of the server that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.checks.case import Case
from tuner.checks.models import place_of
from tuner.errors import EnvironmentNotReadyError
from tuner.extras import Extra
from tuner.load.traffic.encoding import TensorShape, content_bytes
from tuner.load.traffic.inputs import DEFAULT_UNIQUE
from tuner.load.traffic.recordings.duplicates import duplicates
from tuner.load.traffic.repeats import ENTRY_OVERHEAD_BYTES, lru_hit_rate, popularity
from tuner.machine.host import has_gpu, read_gpus, read_host
from tuner.modelconfig.files import weights_bytes
from tuner.modelconfig.schema import enum_name
from tuner.space.candidate import CACHE, list_sizes
from tuner.space.parameters import Knob
from tuner.spec.metrics import OF_GPUS
from tuner.spec.mistakes import Finding, FindingSeverity, Location
from tuner.spec.model import Spec
from tuner.spec.paths import CACHE_SIZE, INSTANCE_GROUP, INSTANCES
from tuner.spec.server import ServerMode
from tuner.spec.units import bytes_text, count_text
from tuner.spec.workload import RandomInputs, UniformRepeat, ZipfRepeat
from tuner.triton.needs import holes_of_image

_ON_GPU = "KIND_GPU"
#: The last release whose Python processes want 64 MiB.
_LAST_LARGE_SHM = "23.08"
#: What the machine keeps from its users, mounts that begin above it included.
_PRIVATE = tuple(
    map(Path, ("/dev", "/etc", "/proc", "/root", "/sys", "/var/lib/containers", "/var/lib/docker"))
)


def no_gpu_memory(spec: Spec, *, seen: bool) -> EnvironmentNotReadyError | None:
    """Why a run cannot judge by a GPU, where it is to: a metric nobody measured never passes.

    ``seen``: a GPU's memory is, or may be.
    """
    wanted = (spec.objective.metric, *(slo.metric for slo in spec.slos))
    metric = next((m for m in wanted if m in OF_GPUS), None)
    if seen or metric is None:
        return None
    return EnvironmentNotReadyError(
        f"no GPU's memory can be read, so no config can be judged by {metric.name}",
        f"take {metric.name} out of the spec; or, where there is a GPU that Triton does not "
        f"measure (MIG, --allow-gpu-metrics=false), {Extra.GPU.command}",
    )


def _sees_no_gpu(case: Case) -> bool:
    return case.spec.server.gpus == "none" or not read_gpus(case.environment)


def check_gpus(case: Case) -> Iterator[Finding]:
    """A run would end where it needs a GPU that this machine does not show."""
    server = case.spec.server
    if not _sees_no_gpu(case):
        return
    if lacking := no_gpu_memory(case.spec, seen=has_gpu() or not server.managed):
        text = f"{lacking.message}: {lacking.hint}"
        yield Finding((), text, severity=FindingSeverity.DOUBTED)
    for model in case.served.models.values() if server.mode is ServerMode.LOCAL else ():
        if any(enum_name(g, "kind") == _ON_GPU for g in model.base.completed.instance_group):
            text = f"{_ON_GPU}, and no GPU is seen: not loaded"
            at = model.place(INSTANCE_GROUP)
            yield Finding((), text, at=at, severity=FindingSeverity.DOUBTED)


def note_gpus(case: Case) -> Iterator[Finding]:
    """What a run does without GPUs."""
    server = case.spec.server
    if not _sees_no_gpu(case):
        return
    docker = server.mode is ServerMode.DOCKER
    if server.gpus != "none" and (docker or "gpus" in server.model_fields_set):
        named = server.gpus if server.gpus == "all" else [*server.gpus]
        then = ("the container runs" if docker else "models run") + " on the CPU"
        then = "the container is refused" if docker and named != "all" else then
        yield _note(f"{named}, and no GPU is seen here: {then}", ("server", "gpus"))
    for parameter in (p for p in case.space.parameters if server.mode is ServerMode.LOCAL):
        if _ON_GPU in parameter:
            text = f"{_ON_GPU}, and no GPU is seen: configs with it fail"
            yield _note(text, place_of(parameter.knob))


def note_weights(case: Case) -> Iterator[Finding]:
    """Instances that have no room for a copy of the weights each."""
    if not case.spec.server.managed:
        return
    room, where = read_host(case.environment).memory_bytes, "this machine"
    for parameter in case.space.parameters:
        model = case.served.models.get(parameter.knob.owner)
        if model is None or parameter.path != INSTANCES:
            continue
        kinds = {enum_name(g, "kind") for g in model.base.completed.instance_group}
        if _ON_GPU in kinds or (not kinds <= {"KIND_CPU"} and read_gpus(case.environment)):
            continue  # how much a GPU has left is seen by the run
        size = max(weights_bytes(model.files.directory, model.base.file, model.files.versions), 1)
        most = max(v for v in parameter if isinstance(v, int))
        if size * most > room:
            fit = room // size
            yield _note(
                f"each instance has its own copy of {bytes_text(size)} of files: {most} need "
                f"{bytes_text(size * most)}, and {where} has {bytes_text(room)}, enough for {fit}",
                place_of(parameter.knob),
            )


def note_shared_memory(case: Case) -> Iterator[Finding]:
    """Python processes that find less of /dev/shm than each wants.

    64 MiB each before python_backend#291 (August 2023), 1 MiB since; or what the server is told.
    """
    server = case.spec.server
    if server.mode is not ServerMode.DOCKER:
        return
    release = re.search(r":(\d\d\.\d\d)-", server.image or "")
    each = 64 << 20 if release and release[1] <= _LAST_LARGE_SHM else 1 << 20
    matches = [re.search(r"python,shm-default-byte-size=(\d+)", arg) for arg in server.args]
    each = next((int(match[1]) for match in matches if match), each)
    instances = 0
    for label, model in case.served.models.items():
        if model.files.backend(model.base.file) == "python":
            counts = [group.count for group in model.base.completed.instance_group]
            parameters = [p for p in case.space.parameters if p.knob == Knob(label, INSTANCES)]
            searched = [v for p in parameters for v in p if isinstance(v, int)]
            instances += max([sum(counts), 1, *searched])
    if instances * each > server.shm_size:
        yield _note(
            f"{instances} Python processes want {bytes_text(each)} of shared memory each, "
            f"{bytes_text(instances * each)}, and shm_size is {bytes_text(server.shm_size)}",
            ("server", "shm_size"),
        )


def note_mounts(case: Case) -> Iterator[Finding]:
    """A warning of each mount of all files, an engine's socket, or what a machine keeps private."""
    for source in case.spec.server.mounts:
        real = Path(source).resolve()
        with_mount = f"with the mount {source} the server may reach"
        if Path("/run") in (real, *real.parents) or real.suffix == ".sock" or real == Path("/"):
            reach = "the container engine's socket or all files, and so be root on this machine"
            yield _note(f"{with_mount} {reach}")
        elif any(real in (place, *place.parents) or place in real.parents for place in _PRIVATE):
            yield _note(f"{with_mount} this machine's devices or secrets")


def note_release(case: Case) -> Iterator[Finding]:
    """A warning of an image with public holes."""
    if text := holes_of_image(case.spec.server.image or ""):
        yield _note(text)


def note_cache_sizes(case: Case) -> Iterator[Finding]:
    """A sentence for each size; none where popularity or the size of an answer is not known."""
    for size in list_sizes(case.spec):
        if not any(size in p for p in case.space.parameters if p.knob == CACHE):
            text = f"{CACHE_SIZE} {bytes_text(size)}: it is more than this machine's memory"
            yield _note(f"not tried: {text}")
    stream, *others = case.spec.streams.values()
    if others:  # how much of the cache each has is not known
        return
    inputs = stream.inputs
    answer = _answer_bytes(case.served.models[stream.model].base.completed)
    recorded = None if case.traffic is None else duplicates(case.traffic.recording)
    for size in sorted(list_sizes(case.spec)) if recorded is not None and answer else ():
        assert recorded is not None
        assert answer is not None
        yield _note(
            f"a cache of {bytes_text(size)} holds about {count_text(size // answer, 'answer')}; "
            f"of the recording it would answer {recorded.answered(size // answer):.0%}"
        )
    repeat = inputs.repeat
    known = isinstance(inputs, RandomInputs) and isinstance(repeat, (UniformRepeat, ZipfRepeat))
    if not known or answer is None:
        return
    exponent = repeat.exponent if isinstance(repeat, ZipfRepeat) else 0.0
    unique = inputs.unique if isinstance(inputs, RandomInputs) else None
    probabilities = popularity(unique or DEFAULT_UNIQUE, exponent)
    for size in sorted(list_sizes(case.spec)):
        yield _note(
            f"a cache of {bytes_text(size)} holds about {count_text(size // answer, 'answer')}; "
            f"expected hit rate {lru_hit_rate(probabilities, size / answer):.0%}"
        )


def _answer_bytes(config: Any) -> int | None:
    """What one takes in Triton's local cache; None for strings and variable dimensions."""
    total = 0
    for output in config.output:
        datatype = enum_name(output, "data_type").removeprefix("TYPE_")
        if datatype in ("STRING", "INVALID") or min(output.dims, default=1) < 1:
            return None
        shape = TensorShape(output.name, datatype, tuple(output.dims))
        total += content_bytes(shape, 0) + ENTRY_OVERHEAD_BYTES
    return total or None


def _note(text: str, location: Location = ()) -> Finding:
    return Finding(location, text, key=True, severity=FindingSeverity.MINOR)
