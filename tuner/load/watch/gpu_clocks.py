"""GPU clocks and whether they are held down, through NVIDIA's management library.

Needs the ``pynvml`` module (package nvidia-ml-py) and a driver; where either is missing there is
nothing to read, and nothing else depends on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tuner.spec.fields import Gpus

#: Bits of NVML's clock event reasons (nvml.h). A card under full load lives at its power cap
#: (0x4), which is no disturbance: it would be there again in the next measurement.
_IDLE = 0x1
_HELD_DOWN = 0x8 | 0x20 | 0x40 | 0x80  # slowdown, too hot (driver's or card's view), power brake


@dataclass(frozen=True)
class GpuClocks:
    """The GPUs that were working at one moment.

    Attributes:
        lowest_mhz: SM clock of the slowest one.
        held_down: Heat or a power fault holds some GPU's clocks down.
    """

    lowest_mhz: float
    held_down: bool


ReadClocks = Callable[[], GpuClocks | None]


@contextmanager
def gpu_clocks(gpus: Gpus = "all") -> Iterator[ReadClocks]:
    """A function that reads them for as long as the context is open; None: nothing to be read.

    Only of ``gpus``: what others do is no disturbance of this server.
    """
    nvml = _initialised()
    if nvml is None:
        yield lambda: None
        return
    try:
        yield lambda: _read(nvml, gpus)
    finally:
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


def _read(nvml: Any, gpus: Gpus) -> GpuClocks | None:
    clocks: list[float] = []
    reasons = 0
    for index in _numbers(nvml, gpus):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            why = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
            clock = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
        except nvml.NVMLError:  # not every card and driver tells
            continue
        if not why & _IDLE:
            clocks.append(float(clock))
            reasons |= why
    return GpuClocks(min(clocks), bool(reasons & _HELD_DOWN)) if clocks else None


def _numbers(nvml: Any, gpus: Gpus) -> Sequence[int]:
    if gpus == "all":
        return range(_count(nvml))
    return () if gpus == "none" else gpus


def _count(nvml: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:  # the driver went away meanwhile
        return 0
