"""Facts about this machine, and its CPUs and GPUs; what cannot be read is None or empty.

GPUs are listed by ``nvidia-smi`` and read with NVIDIA's management library, through the module
``pynvml`` (package nvidia-ml-py). Where that or a driver is missing there is nothing to read, and
nothing else depends on it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tuner.errors import EnvironmentNotReadyError
from tuner.spec.fields import Cpus, Gpus

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version")
_GPU_TIMEOUT_S = 30.0
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # the second one on WSL
_MIB = 1 << 20
#: The load generator gets one core in so many, and at least one.
_CORES_PER_LOAD_CORE = 4
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True)
class Cores:
    """The CPUs, by number, that each may use; empty: any that tune may use itself."""

    server: tuple[int, ...] = ()
    load: tuple[int, ...] = ()

    @property
    def apart(self) -> bool:
        """Neither can take the other's CPU."""
        return bool(self.server and self.load) and not {*self.server} & {*self.load}

    def __str__(self) -> str:
        """A sentence's middle; empty where both may use any."""
        if not (self.server or self.load):
            return ""
        server, load = (_named(cpus) for cpus in (self.server, self.load))
        return f"the server has {server} and the load generator {load}"


#: Server and load generator may use any CPU.
NOT_SPLIT = Cores()


def share_cores(server: Cpus, load: Cpus) -> Cores:
    """The split that a spec asks for; where it leaves one open, that gets what the other has not.

    Raises:
        EnvironmentNotReadyError: It names CPUs that this process may not use.
    """
    usable = sorted(os.sched_getaffinity(0))
    for place, cpus in (("server.cpus", server), ("workload.cpus", load)):
        if isinstance(cpus, tuple) and not {*cpus} <= {*usable}:
            raise EnvironmentNotReadyError(
                f"{place} names {_named([c for c in cpus if c not in usable])}",
                f"name some of {_named(usable)}, which tune may use here",
            )
    if isinstance(server, tuple) and load is None:
        return Cores(server, _without(usable, server))
    if isinstance(load, tuple) and server is None:
        return Cores(_without(usable, load), load)
    if server is None and load is None and len(usable) > 1:
        cores = _whole_cores(usable)
        count = max(len(cores) // _CORES_PER_LOAD_CORE, 1)
        last = tuple(sorted(cpu for core in cores[-count:] for cpu in core))
        return Cores(_without(usable, last), last)
    return Cores(*(cpus if isinstance(cpus, tuple) else () for cpus in (server, load)))


def core_count(cpus: Collection[int]) -> int:
    """How many CPUs these are; empty: all that this process may use."""
    return len(cpus or os.sched_getaffinity(0))


def _without(cpus: Sequence[int], taken: Collection[int]) -> tuple[int, ...]:
    return tuple(cpu for cpu in cpus if cpu not in taken)


def _whole_cores(cpus: Sequence[int]) -> list[list[int]]:
    """CPUs that are threads of one core go together; where there is but one, each by itself."""
    paths = {cpu: Path(_SIBLINGS.format(cpu)) for cpu in cpus}
    core = {cpu: p.read_text() if p.exists() else str(cpu) for cpu, p in paths.items()}
    together: dict[str, list[int]] = {}
    for cpu in cpus:
        together.setdefault(core[cpu], []).append(cpu)
    return [*together.values()] if len(together) > 1 else [[cpu] for cpu in cpus]


def _named(cpus: Collection[int]) -> str:
    """CPU 3, CPUs 0-5,8 or any CPU."""
    spans = [
        [cpu for _, cpu in span]
        for _, span in groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])
    ]
    text = ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)
    return f"CPU{'s' if len(cpus) > 1 else ''} {text}" if cpus else "any CPU"


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    uuid: str
    memory_bytes: int | None
    driver: str


@dataclass(frozen=True)
class Host:
    """One machine.

    Attributes:
        cores: CPUs this process may run on.
        load_1m: Load average over the last minute when this was read.
        governor: Frequency governor of the first core; anything but ``performance`` adds noise.
    """

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    load_1m: float
    governor: str | None
    gpus: tuple[Gpu, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "gpus": [asdict(gpu) for gpu in self.gpus]}

    def fingerprint(self, triton_version: str, cores: Cores = NOT_SPLIT) -> str:
        """The same on machines whose measurements may be compared (16 hex digits).

        Made of CPU model, cores and how they are shared, GPU models, driver and server version;
        load and memory in use do not count.
        """
        gpus = [[gpu.name, gpu.driver] for gpu in self.gpus]
        text = json.dumps([self.cpu, self.cores, str(cores), gpus, triton_version])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_host(environment: Mapping[str, str]) -> Host:
    """Reads the facts now; runs ``nvidia-smi`` when it is on PATH."""
    return Host(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        kernel=platform.release(),
        load_1m=os.getloadavg()[0],
        governor=read_governor(),
        gpus=read_gpus(environment),
    )


def read_governor() -> str | None:
    """The frequency governor of the first core; None where it is not visible (most clouds)."""
    return _text(_GOVERNOR)


def has_gpu() -> bool:
    """Whether a driver shows a GPU here; starts no program."""
    return any(Path(device).exists() for device in _GPU_DEVICES)


def read_gpus(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs ``nvidia-smi`` lists; none when it is missing or fails."""
    program = shutil.which("nvidia-smi", path=environment.get("PATH", ""))
    if program is None:
        return ()
    query = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            query,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GPU_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(parse_gpus(done.stdout.splitlines())) if done.returncode == 0 else ()


def parse_gpus(lines: Iterable[str]) -> Iterable[Gpu]:
    """Reads ``nvidia-smi --format=csv,noheader,nounits``; memory is in MiB, or ``[N/A]``."""
    for line in lines:
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(_GPU_FIELDS):
            index, name, uuid, memory, driver = values
            size = int(memory) * _MIB if memory.isdigit() else None
            yield Gpu(int(index), name, uuid, size, driver)


def _cpu_model() -> str:
    for line in (_text(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


@contextmanager
def open_nvml() -> Iterator[Any | None]:
    """The module, initialised for as long as the context is open."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


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
