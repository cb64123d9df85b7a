"""Checks of what a spec needs from the machine and from the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.checks.case import Case
from tuner.checks.models import place_of
from tuner.errors import EnvironmentNotReadyError
from tuner.extras import Extra
from tuner.load.traffic.encoding import fixed_bytes
from tuner.load.traffic.inputs import DEFAULT_UNIQUE
from tuner.load.traffic.recordings.duplicates import duplicates
from tuner.load.traffic.repeats import ENTRY_OVERHEAD_BYTES, lru_hit_rate, popularity
from tuner.machine.host import has_gpu, read_gpus, read_host
from tuner.modelconfig.files import weights_bytes
from tuner.modelconfig.schema import enum_name
from tuner.modelconfig.spanning import spanning, world_size
from tuner.regular import is_there
from tuner.server.log import OTHER_BACKENDS
from tuner.space.candidate import CACHE, list_sizes
from tuner.space.parameters import Knob
from tuner.spec.fields import Choice
from tuner.spec.metrics import OF_GPUS
from tuner.spec.mistakes import Finding, FindingSeverity, Location
from tuner.spec.model import Spec
from tuner.spec.paths import CACHE_SIZE, INSTANCE_GROUP, INSTANCES, is_instance_count
from tuner.spec.server import ServerMode
from tuner.spec.units import bytes_text, count_text
from tuner.spec.workload import RandomInputs, UniformRepeat, ZipfRepeat
from tuner.triton.needs import (
    backend_directory,
    backends_of,
    holes_of_image,
    image_with,
    lacking_in_image,
)

ON_GPU = "KIND_GPU"
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


def sees_no_gpu(case: Case) -> bool:
    return case.spec.server.gpus == "none" or not read_gpus(case.environment)


def check_gpus(case: Case) -> Iterator[Finding]:
    """Reports a spec that needs a GPU where this machine shows none."""
    server = case.spec.server
    if not sees_no_gpu(case):
        return
    if lacking := no_gpu_memory(case.spec, seen=has_gpu() or not server.managed):
        text = f"{lacking.message}: {lacking.hint}"
        yield Finding((), text, severity=FindingSeverity.DOUBTED)
    for model in case.served.models.values() if server.mode is ServerMode.LOCAL else ():
        if any(enum_name(g, "kind") == ON_GPU for g in model.base.completed.instance_group):
            text = f"{ON_GPU}, and no GPU is seen: not loaded"
            at = model.place(INSTANCE_GROUP)
            yield Finding((), text, at=at, severity=FindingSeverity.DOUBTED)


def check_listed_gpus(case: Case) -> Iterator[Finding]:
    """Reports configs that list GPUs which the server does not see."""
    server, seen = case.spec.server, read_gpus(case.environment)
    if not server.managed or sees_no_gpu(case):
        return
    count = len(seen) if isinstance(server.gpus, str) else len(server.gpus)
    for model in case.served.models.values():
        config = model.base.file
        lists = {
            f"{INSTANCE_GROUP}[{index}].gpus": set(group.gpus)
            for index, group in enumerate(config.instance_group)
        }
        if spans := spanning(config, model.files.backend(config)):
            lists[spans.path] = spans.gpus
        built_for = world_size(config) if server.mode is ServerMode.LOCAL else 0
        if built_for > count:
            text = f"its engine spans {built_for} GPUs, and the server sees {count}: not loaded"
            at = model.place("parameters")
            yield Finding((), text, at=at, severity=FindingSeverity.DOUBTED)
        for path, gpus in lists.items():
            if missing := sorted(gpu for gpu in gpus if gpu >= count):
                text = f"{path} has GPU {missing[0]}, and the server sees {count}: not loaded"
                at = model.place(path)
                hint = "GPUs are counted from 0, as the server sees them"
                yield Finding((), text, at=at, hint=hint, severity=FindingSeverity.DOUBTED)


def note_spanning(case: Case) -> Iterator[Finding]:
    """Notes searched counts of instances that each span the same GPUs."""
    for parameter in case.space.parameters:
        model = case.served.models.get(parameter.knob.owner)
        if model is None or not is_instance_count(parameter.path):
            continue
        spans = spanning(model.base.file, model.files.backend(model.base.file))
        if spans is not None and spans.several:
            takes, place = f"each instance takes GPUs {spans.text}", place_of(parameter.knob)
            text = f"{takes} together: more instances share them, or fail"
            hint = "leave the number of instances out of the space"
            yield Finding(place, text, key=True, hint=hint, severity=FindingSeverity.NOTED)


def check_image(case: Case) -> Iterator[Finding]:
    """Reports an image of NVIDIA's that, by its name, lacks a model's backend."""
    server = case.spec.server
    if server.mode is not ServerMode.DOCKER or backend_directory(server.args) is not None:
        return
    needed = backends_of(model.files for model in case.served.models.values())
    for backend, directory in needed.items():
        if why := lacking_in_image(server.image or "", backend):
            image, text = image_with(needed), f"{directory.name} is not loaded: {why}"
            hint = f"take {image}" if image else OTHER_BACKENDS[server.mode]
            place = ("server", "image")
            yield Finding(place, text, hint=hint, severity=FindingSeverity.DOUBTED)


def note_gpus(case: Case) -> Iterator[Finding]:
    """Notes what a run without GPUs does."""
    server = case.spec.server
    if not sees_no_gpu(case):
        return
    docker = server.mode is ServerMode.DOCKER
    if server.gpus != "none" and (docker or "gpus" in server.model_fields_set):
        named = server.gpus if server.gpus == "all" else [*server.gpus]
        then = ("the container runs" if docker else "models run") + " on the CPU"
        then = "the container is refused" if docker and named != "all" else then
        yield _note(f"{named}, and no GPU is seen here: {then}", ("server", "gpus"))
    if server.mode is not ServerMode.LOCAL:
        return
    kept = {place_of(p.knob) for p in case.space.parameters if ON_GPU in p}
    for label, model in case.spec.models.items():
        for path, values in model.space.items():
            if isinstance(values, Choice) and ON_GPU in values.choice:
                place = ("models", label, "space", path)
                then = "configs with it fail" if place in kept else "not tried"
                yield _note(f"{ON_GPU}, and no GPU is seen: {then}", place)


def note_weights(case: Case) -> Iterator[Finding]:
    """Notes counts of instances whose copies of the weights do not fit into memory."""
    if not case.spec.server.managed:
        return
    room, where = read_host(case.environment).memory_bytes, "this machine"
    for parameter in case.space.parameters:
        model = case.served.models.get(parameter.knob.owner)
        if model is None or parameter.path != INSTANCES:
            continue
        kinds = {enum_name(g, "kind") for g in model.base.completed.instance_group}
        if ON_GPU in kinds or (not kinds <= {"KIND_CPU"} and read_gpus(case.environment)):
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
    """Notes Python processes that need more of `/dev/shm` than the container has.

    Each needs 64 MiB before python_backend#291 (August 2023), 1 MiB since, or as the server's
    arguments say.
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
    """Notes mounts of all files, of an engine's socket, or of a machine's private files."""
    for source in case.spec.server.mounts:
        real = Path(source).resolve()
        with_mount = f"with the mount {source} the server may reach"
        if Path("/run") in (real, *real.parents) or real.suffix == ".sock" or real == Path("/"):
            reach = "the container engine's socket or all files, and so be root on this machine"
            yield _note(f"{with_mount} {reach}")
        elif any(real in (place, *place.parents) or place in real.parents for place in _PRIVATE):
            yield _note(f"{with_mount} this machine's devices or secrets")


def note_libraries(case: Case) -> Iterator[Finding]:
    """Libraries of operators outside the repository, without which a model is not loaded."""
    server = case.spec.server
    for model in case.served.models.values() if server.managed else ():
        for index, name in enumerate(model.base.file.model_operations.op_library_filename):
            library = Path(name)
            if not library.is_absolute():
                continue
            text = f"{name} is loaded with the model"
            if server.mode is ServerMode.LOCAL:
                there, text = is_there(library), f"{text}, and is not there"
            else:
                there = any(library.is_relative_to(target) for target in server.mounts.values())
                text = f"{text}: the image must have it, or server.mounts"
            if not there:
                at = model.place(f"model_operations.op_library_filename[{index}]")
                yield Finding((), text, at=at, severity=FindingSeverity.NOTED)


def note_release(case: Case) -> Iterator[Finding]:
    """Notes an image with public vulnerabilities."""
    if text := holes_of_image(case.spec.server.image or ""):
        yield _note(text)


def note_cache_sizes(case: Case) -> Iterator[Finding]:
    """A sentence for each size; none where popularity or the size of an answer is not known."""
    for size in list_sizes(case.spec):
        if not any(size in p for p in case.space.parameters if p.knob == CACHE):
            text = f"{CACHE_SIZE} {bytes_text(size)}: it is more than this machine's memory"
            yield _note(f"not tried: {text}")
    stream, *others = case.spec.streams.values()
    answer = _answer_bytes(case.served.models[stream.model].base.completed)
    if others or answer is None:  # how much of the cache each has is not known
        return
    sizes = sorted(list_sizes(case.spec))
    if case.traffic is not None and (recorded := duplicates(case.traffic.recording)) is not None:
        for size in sizes:
            rate = recorded.answered(size // answer)
            yield _note(f"{_holds(size, answer)}; of the recording it would answer {rate:.0%}")
    inputs = stream.inputs
    if isinstance(inputs, RandomInputs) and isinstance(inputs.repeat, (UniformRepeat, ZipfRepeat)):
        probabilities = popularity(inputs.unique or DEFAULT_UNIQUE, inputs.repeat.exponent)
        for size in sizes:
            rate = lru_hit_rate(probabilities, size / answer)
            yield _note(f"{_holds(size, answer)}; expected hit rate {rate:.0%}")


def _holds(size: int, answer: int) -> str:
    return f"a cache of {bytes_text(size)} holds about {count_text(size // answer, 'answer')}"


def _answer_bytes(config: Any) -> int | None:
    """What one takes in Triton's local cache; None for strings and variable dimensions."""
    total = 0
    for output in config.output:
        if (size := fixed_bytes(output)) is None:
            return None
        total += size + ENTRY_OVERHEAD_BYTES
    return total or None


def _note(text: str, location: Location = ()) -> Finding:
    return Finding(location, text, key=True, severity=FindingSeverity.MINOR)
