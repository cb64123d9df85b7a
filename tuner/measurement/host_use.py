"""What the machines did while a load was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


def is_unknown(value: object) -> bool:
    """For ``exclude_if``: what was not read is left out of files."""
    return value is None


@dataclass(frozen=True)
class MemoryTrend:
    """How much memory was in use over the window, by least squares; see `tuner.load.course`.

    Attributes:
        used_bytes: On average.
        growth_bytes: From the first to the last moment on a line.
        growth_error_bytes: Its standard error.
        late_growth_bytes: The same of the second half alone, and its standard error.
    """

    used_bytes: float
    growth_bytes: float
    growth_error_bytes: float
    late_growth_bytes: float
    late_growth_error_bytes: float


@dataclass(frozen=True)
class HostUse:
    """What the machines did meanwhile; ``None`` where it could not be read."""

    cpu_percent: float | None = None  # of all cores, 0..100
    other_cpu_percent: float | None = None  # of all cores, by processes that are not ours
    stolen_cpu_percent: float | None = None  # of all cores, taken by the hypervisor
    cores: int | None = None  # all cores, where server and load generator share them
    load_1m: float | None = None  # load average over the last minute, at the end
    governor: str | None = None  # frequency governor of the first core
    pending_requests_max: float | None = None  # nv_inference_pending_request_count, sampled
    gpus: int | None = None  # that the server sees
    gpu_memory_used_bytes: int | None = None  # peak over the window, the fullest GPU
    gpu_utilization: float | None = None  # mean, 0..1
    gpu_power_w: float | None = None  # mean
    gpu_clock_mhz: float | None = None  # lowest seen, of the GPUs it may use
    gpu_throttled: bool | None = None  # some GPU's clocks were held down meanwhile
    cache_utilization: float | None = None  # nv_cache_util, 0..1, at the end
    cache_entries: int | None = None
    cache_evictions: int | None = None
    #: Of the time of all cores, in stalls: `tuner.load.watch.machine`.
    stalled_percent: Annotated[float | None, Field(exclude_if=is_unknown)] = None
    #: The CPU quota of the server's processes; the share of its periods in which it was used up.
    quota_cpus: Annotated[float | None, Field(exclude_if=is_unknown)] = None
    throttled_percent: Annotated[float | None, Field(exclude_if=is_unknown)] = None
    throttled_s: Annotated[float | None, Field(exclude_if=is_unknown)] = (
        None  # of each CPU, added up
    )
    #: Of the server's processes, without what they share; and of all GPUs together.
    memory: Annotated[MemoryTrend | None, Field(exclude_if=is_unknown)] = None
    gpu_memory: Annotated[MemoryTrend | None, Field(exclude_if=is_unknown)] = None
