"""How many instances a draft searches, and where they are put."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tuner.modelconfig.schema import enum_name
from tuner.space.draft_text import DraftEntry, Remark
from tuner.spec.paths import INSTANCE_GROUP, INSTANCES
from tuner.spec.units import bytes_text, count_text

#: Instances worth trying on a GPU: Triton's documentation finds little beyond two to four.
MOST_GPU_INSTANCES = 4
#: And on a CPU, however many cores there are.
MOST_CPU_INSTANCES = 8


@dataclass(frozen=True)
class Machine:
    """What the server runs on; ``gpu_memory_bytes`` is of the smallest GPU."""

    cores: int
    gpus: int = 0
    gpu_memory_bytes: int | None = None
    memory_bytes: int | None = None


def instances(
    config: Any, machine: Machine, weights_bytes: int = 0
) -> Iterator[DraftEntry | Remark]:
    """How many there may be, of each group; of ``weights_bytes`` each has a copy in memory."""
    groups = list(config.instance_group)
    for index, group in enumerate(groups or [None]):
        on_gpu = _on_gpu(group, machine)
        path = INSTANCES if len(groups) < 2 else f"{INSTANCE_GROUP}[{index}].count"
        most = MOST_GPU_INSTANCES if on_gpu else min(MOST_CPU_INSTANCES, max(2, machine.cores))
        place = "GPU" if on_gpu else f"CPU, {count_text(machine.cores, 'core')} here"
        if group is not None and enum_name(group, "kind") == "KIND_MODEL":
            place = "KIND_MODEL: the model chooses its devices"
        room = machine.gpu_memory_bytes if on_gpu else machine.memory_bytes
        fit = most if room is None or not weights_bytes else room // weights_bytes
        if fit < most:
            sizes = bytes_text(weights_bytes), bytes_text(room or 0)
            yield Remark(
                f"Each instance has a copy of {sizes[0]} of files, and {sizes[1]} are here: enough "
                f"for {fit}."
            )
        most = max(min(most, fit), 1, 0 if group is None else group.count)  # it has today's
        yield DraftEntry(path, f"{{int: [1, {most}]}}", place)
        if on_gpu and not machine.gpus:
            yield Remark(
                "KIND_GPU needs a GPU and none is here: Triton will refuse to load the model."
            )
        elif on_gpu and machine.gpu_memory_bytes is not None:
            yield Remark(f"Each instance takes its part of {machine.gpu_memory_bytes >> 30} GiB.")


def any_on_gpu(config: Any, machine: Machine) -> bool:
    """Whether some instance group is put on a GPU."""
    return any(_on_gpu(group, machine) for group in config.instance_group or [None])


def _on_gpu(group: Any, machine: Machine) -> bool:
    """Whether an instance group, None: the one that Triton adds, is put on a GPU."""
    kind = "KIND_AUTO" if group is None else enum_name(group, "kind")
    return kind == "KIND_GPU" or (kind in ("KIND_AUTO", "KIND_MODEL") and machine.gpus > 0)
