"""Facts about the machine a measurement was made on; what cannot be read is None or empty."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.machine.cores import NOT_SPLIT, Cores

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version")
_GPU_TIMEOUT_S = 30.0
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # the second one on WSL
_MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

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
