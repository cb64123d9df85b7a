"""The numbers of instances that a draft searches, and their devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tuner.modelconfig.backends import backend_of, is_gpu_only
from tuner.modelconfig.known_backends import BACKENDS
from tuner.modelconfig.schema import enum_name
from tuner.modelconfig.spanning import spanning
from tuner.space.draft_text import DraftEntry, Remark, flow, off
from tuner.spec.paths import INSTANCE_GROUP, INSTANCES
from tuner.spec.units import bytes_text, count_text

#: Instances worth trying on a GPU: Triton's documentation finds little beyond two to four.
MOST_GPU_INSTANCES = 4
#: Most instances worth trying on a CPU, with any number of cores.
MOST_CPU_INSTANCES = 8
_ON_CPU, _BY_MODEL = "KIND_CPU", "KIND_MODEL"


@dataclass(frozen=True)
class Machine:
    """The server's machine; ``gpu_memory_bytes``: of the smallest GPU."""

    cores: int
    gpus: int = 0
    gpu_memory_bytes: int | None = None
    memory_bytes: int | None = None


class CudaUse(Enum):
    """Whether the code of a Python model uses a GPU."""

    NONE = "none"
    BY_KIND = "by the kind of the instance"
    ALWAYS = "always"


def instances(
    config: Any,
    machine: Machine,
    weights_bytes: int = 0,
    given: Mapping[str, Any] | None = None,
    cuda: CudaUse = CudaUse.NONE,
) -> Iterator[DraftEntry | Remark]:
    """The range of instances of each group; each instance needs ``weights_bytes`` of memory.

    ``given``: The numbers of a single group, where they are known.
    """
    spans = spanning(config, backend_of(config))
    if spans is not None and spans.several:
        yield Remark(
            f"Each instance takes GPUs {spans.text} together ({spans.path}), so their number"
        )
        yield Remark("is not searched: more would share the same GPUs.")
        return
    groups = list(config.instance_group)
    for index, group in enumerate(groups or [None]):
        path = INSTANCES if len(groups) < 2 else f"{INSTANCE_GROUP}[{index}].count"
        on_gpu, kind = _on_gpu(config, group, machine, cuda), _kind(group)
        place, room = _place(kind, machine, on_gpu=on_gpu)
        most = MOST_GPU_INSTANCES if on_gpu else min(MOST_CPU_INSTANCES, max(2, machine.cores))
        fit = most if room is None or not weights_bytes else room // weights_bytes
        if fit < most:
            sizes = bytes_text(weights_bytes), bytes_text(room or 0)
            yield Remark(
                f"Each instance has a copy of {sizes[0]} of files, and {sizes[1]} are here: enough "
                f"for {fit}."
            )
        most = max(min(most, fit), 1, 0 if group is None else group.count)  # it has today's
        if given and path == INSTANCES:
            yield DraftEntry(path, flow(given), place)
        elif most > 1:
            yield DraftEntry(path, flow({"int": [1, most]}), place)
        yield from map(Remark, _device_remarks(config, kind, machine, on_gpu=on_gpu))
        yield from _limit_remarks(group)
        if len(groups) == 1 and kind == _ON_CPU and machine.gpus and _may_use_gpu(config, cuda):
            here = count_text(machine.gpus, "GPU")
            yield Remark(f"config.pbtxt says KIND_CPU, and here is {here}. To measure both:")
            yield off(f"{INSTANCE_GROUP}.kind", "{choice: [KIND_CPU, KIND_GPU]}")


def _limit_remarks(group: Any) -> Iterator[DraftEntry | Remark]:
    """What rate_limiter takes, which only an argument turns on."""
    if group is not None and group.HasField("rate_limiter"):
        yield Remark("rate_limiter does nothing here unless you write, under server:")
        yield off("args", "[--rate-limit=execution_count]")
    if group is not None and group.rate_limiter.resources:
        yield Remark("Then only as many instances run at once as its resources allow.")


def _place(kind: str, machine: Machine, *, on_gpu: bool) -> tuple[str, int | None]:
    """The devices of a group in words, and the bytes of memory there."""
    if kind == _BY_MODEL:  # on one GPU, or on all together
        room = machine.gpu_memory_bytes if on_gpu else machine.memory_bytes
        return "KIND_MODEL: the model chooses its devices", room and room * max(machine.gpus, 1)
    if not on_gpu:
        return f"CPU, {count_text(machine.cores, 'core')} here", machine.memory_bytes
    place = "KIND_CPU, but model.py uses a GPU" if kind == _ON_CPU else "GPU"
    return place, machine.gpu_memory_bytes


def _device_remarks(config: Any, kind: str, machine: Machine, *, on_gpu: bool) -> Iterator[str]:
    if not on_gpu:
        return
    if not machine.gpus:
        what = backend_of(config) if is_gpu_only(config) else "KIND_GPU"
        yield f"{what} needs a GPU and none is here: Triton will refuse to load the model."
    elif kind == _BY_MODEL:
        yield "Every instance takes the devices that the model chooses once more."
    elif kind == _ON_CPU:
        yield "Triton spreads instances of KIND_CPU over no GPUs: all use the same one."
    elif machine.gpu_memory_bytes is not None:
        yield f"Each instance takes its part of {machine.gpu_memory_bytes >> 30} GiB."


def any_on_gpu(config: Any, machine: Machine, cuda: CudaUse = CudaUse.NONE) -> bool:
    """Whether some instance group uses a GPU, by Triton's placement or by the model's code."""
    return any(_on_gpu(config, group, machine, cuda) for group in config.instance_group or [None])


def _on_gpu(config: Any, group: Any, machine: Machine, cuda: CudaUse) -> bool:
    """Whether a group uses a GPU; None: the group that Triton adds itself."""
    kind = _kind(group)
    return (
        kind == "KIND_GPU"
        or is_gpu_only(config)
        or (kind in ("KIND_AUTO", _BY_MODEL) and machine.gpus > 0)
        or (kind == _ON_CPU and cuda is CudaUse.ALWAYS and machine.gpus > 0)
    )


def _kind(group: Any) -> str:
    return "KIND_AUTO" if group is None else enum_name(group, "kind")


def _may_use_gpu(config: Any, cuda: CudaUse) -> bool:
    """Whether instances of KIND_GPU would use a GPU, as far as that is known."""
    backend = backend_of(config)
    if backend == "python":
        return cuda is not CudaUse.NONE
    return backend in BACKENDS and BACKENDS[backend].on_gpus
