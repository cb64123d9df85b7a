"""Facts about this machine and its GPUs; a fact that cannot be read is None or empty.

``nvidia-smi`` lists the GPUs. NVIDIA's management library provides their values, through the module
``pynvml`` (package nvidia-ml-py). Both, and the driver, are optional.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.machine.cpus import ANY, Cores, core_count
from tuner.machine.quota import text_of
from tuner.spec.fields import Gpus

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version")
_GPU_TIMEOUT_S = 30.0
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # the second one on WSL
_MIB = 1 << 20
#: Environment variables that set the number and the placement of a runtime's threads.
_THREADS = re.compile(
    r"\w+_(NUM|MAX)_THREADS|TF_NUM_INT(RA|ER)OP_THREADS|(OMP|KMP|GOMP|MKL|OPENBLAS|RAYON)_\w+"
    r"|OPENCV_FOR_THREADS_NUM|LOKY_MAX_CPU_COUNT|PYTHON_CPU_COUNT|TOKENIZERS_PARALLELISM"
)


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
        cpu: Model of the CPU.
        cores: CPUs that this process can keep busy, by its affinity and its CPU quota.
        memory_bytes: Memory of the machine.
        kernel: Release of the kernel.
        load_1m: Load average over the last minute before this was read.
        governor: Frequency governor of the first core; others than ``performance`` add noise. None:
            not visible.
        threads: Environment variables that set the number of a runtime's threads.
    """

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    load_1m: float
    governor: str | None
    gpus: tuple[Gpu, ...]
    threads: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "gpus": [asdict(gpu) for gpu in self.gpus]}

    def fingerprint(self, triton_version: str, cores: Cores = ANY) -> str:
        """A hash of 16 hex digits, equal on machines whose measurements are comparable.

        It covers CPU model, cores, the CPUs that the spec names, variables that set the number of
        threads, GPU models, driver and server version, but neither load nor memory in use.
        """
        gpus = [[gpu.name, gpu.driver] for gpu in self.gpus]
        named, threads = [cores.server, cores.load], sorted(self.threads.items())
        text = json.dumps([self.cpu, self.cores, named, threads, gpus, triton_version])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_host(environment: Mapping[str, str]) -> Host:
    """Reads the facts; runs ``nvidia-smi`` if it is on PATH."""
    return Host(
        cpu=_cpu_model(),
        cores=core_count(),
        memory_bytes=machine_memory_bytes(),
        kernel=platform.release(),
        load_1m=os.getloadavg()[0],
        governor=read_governor(),
        gpus=read_gpus(environment),
    )


def machine_memory_bytes() -> int:
    """Total memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def thread_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that set the number or the placement of a runtime's threads."""
    return {name: value for name, value in environment.items() if _THREADS.fullmatch(name)}


def read_governor() -> str | None:
    """The frequency governor of the first core; None if it is not visible (most clouds)."""
    return text_of(_GOVERNOR)


def has_gpu() -> bool:
    """Whether a driver shows a GPU here; starts no program."""
    return any(Path(device).exists() for device in _GPU_DEVICES)


def read_gpus(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that ``nvidia-smi`` lists; empty if it is missing or fails."""
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
    for line in (text_of(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


@contextmanager
def open_nvml() -> Iterator[Any | None]:
    """The module ``pynvml``, initialized while the context is open; None if it cannot be used."""
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
    """Handles of the GPUs that can be read now."""
    if gpus == "all":
        gpus = ()
        with suppress(nvml.NVMLError):  # the driver was unloaded meanwhile
            gpus = tuple(range(int(nvml.nvmlDeviceGetCount())))
    for index in () if gpus == "none" else gpus:
        with suppress(nvml.NVMLError):
            yield nvml.nvmlDeviceGetHandleByIndex(index)


def gpu_memory(gpus: Gpus) -> Mapping[str, tuple[int, int]]:
    """Used and total bytes of each GPU by UUID; of a GPU in MIG mode, of each instance."""
    by_uuid = {}
    with open_nvml() as nvml:
        if nvml is None:
            return {}
        for part in (part for gpu in handles(nvml, gpus) for part in _parts(nvml, gpu)):
            with suppress(nvml.NVMLError):
                memory = nvml.nvmlDeviceGetMemoryInfo(part)
                by_uuid[str(nvml.nvmlDeviceGetUUID(part))] = int(memory.used), int(memory.total)
    return by_uuid


def _parts(nvml: Any, gpu: Any) -> list[Any]:
    parts = []
    try:
        if not nvml.nvmlDeviceGetMigMode(gpu)[0]:
            return [gpu]
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except nvml.NVMLError:  # no MIG
        return [gpu]
    for index in range(most):
        with suppress(nvml.NVMLError):  # fewer instances exist
            parts.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
    return parts
