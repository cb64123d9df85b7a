"""What the machines did while a load was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tuner.facts import is_none


@dataclass(frozen=True)
class MemoryTrend:
    """How memory use changed over the window: a line of least squares (`tuner.load.course`).

    Attributes:
        used_bytes: Mean memory use.
        growth_bytes: Growth from the start to the end of the window, along the line.
        growth_error_bytes: Standard error of that growth.
        late_growth_bytes: Growth over the second half of the window alone.
        late_growth_error_bytes: Standard error of the growth over the second half.
    """

    used_bytes: float
    growth_bytes: float
    growth_error_bytes: float
    late_growth_bytes: float
    late_growth_error_bytes: float


@dataclass(frozen=True)
class HostUse:
    """What server, load generator and machine used in the window; ``None``: could not be read."""

    cpu_percent: float | None = None  # of all cores, 0..100
    other_cpu_percent: float | None = None  # of all cores, by other processes than this run's
    stolen_cpu_percent: float | None = None  # of all cores, taken by the hypervisor
    cores: int | None = None  # all cores, where server and load generator share them
    load_1m: float | None = None  # load average over the last minute, at the end
    governor: str | None = None  # frequency governor of the first core
    pending_requests_max: float | None = None  # nv_inference_pending_request_count, sampled
    gpus: int | None = None  # GPUs that the server sees
    gpu_memory_used_bytes: int | None = None  # peak over the window, of the fullest GPU
    gpu_utilization: float | None = None  # mean, 0..1
    gpu_power_w: float | None = None  # mean
    gpu_clock_mhz: float | None = None  # lowest sample of any GPU that the server may use
    gpu_throttled: bool | None = None  # heat or power limits lowered some GPU's clocks
    cache_utilization: float | None = None  # nv_cache_util, 0..1, at the end
    cache_entries: int | None = None
    cache_evictions: int | None = None
    #: Stalls, as a share of the time of all cores: `tuner.load.watch.machine`.
    stalled_percent: Annotated[float | None, Field(exclude_if=is_none)] = None
    #: The CPU quota of the server's processes, and the share of quota periods that used it up.
    quota_cpus: Annotated[float | None, Field(exclude_if=is_none)] = None
    throttled_percent: Annotated[float | None, Field(exclude_if=is_none)] = None
    throttled_s: Annotated[float | None, Field(exclude_if=is_none)] = None  # summed over CPUs
    #: Most threads of the server's processes, sampled.
    server_threads: Annotated[int | None, Field(exclude_if=is_none)] = None
    #: Memory of the server's processes without shared pages, and of all GPUs together.
    memory: Annotated[MemoryTrend | None, Field(exclude_if=is_none)] = None
    gpu_memory: Annotated[MemoryTrend | None, Field(exclude_if=is_none)] = None
