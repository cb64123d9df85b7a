"""NVIDIA's management library, through the module ``pynvml`` (package nvidia-ml-py).

Where the module or a driver is missing there is nothing to read, and nothing else depends on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tuner.spec.fields import Gpus


@contextmanager
def open_nvml() -> Iterator[Any | None]:
    """The module, initialised for as long as the context is open."""
    nvml = _initialised()
    try:
        yield nvml
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()


def _initialised() -> Any | None:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def handles(nvml: Any, gpus: Gpus) -> Iterator[Any]:
    """Those of the GPUs that can be read now."""
    if gpus == "all":
        gpus = ()
        with suppress(nvml.NVMLError):  # the driver went away meanwhile
            gpus = tuple(range(int(nvml.nvmlDeviceGetCount())))
    for index in () if gpus == "none" else gpus:
        with suppress(nvml.NVMLError):
            yield nvml.nvmlDeviceGetHandleByIndex(index)


def gpu_memory(gpus: Gpus) -> Mapping[str, tuple[int, int]]:
    """Bytes used and total by UUID; of a GPU that is split (MIG), those of each of its parts."""
    found = {}
    with open_nvml() as nvml:
        if nvml is None:
            return {}
        for part in (part for gpu in handles(nvml, gpus) for part in _parts(nvml, gpu)):
            with suppress(nvml.NVMLError):
                memory = nvml.nvmlDeviceGetMemoryInfo(part)
                found[str(nvml.nvmlDeviceGetUUID(part))] = int(memory.used), int(memory.total)
    return found


def _parts(nvml: Any, gpu: Any) -> list[Any]:
    parts = []
    try:
        if not nvml.nvmlDeviceGetMigMode(gpu)[0]:
            return [gpu]
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except nvml.NVMLError:  # it cannot be split
        return [gpu]
    for index in range(most):
        with suppress(nvml.NVMLError):  # there are fewer
            parts.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    return parts
