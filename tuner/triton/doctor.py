"""Is this machine ready? Each check says what it found and how to mend it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TunerError
from tuner.machine import host
from tuner.machine.ports import free_ports
from tuner.server import binaries
from tuner.server.control import Control
from tuner.server.server import Endpoints
from tuner.spec.environment import resolve
from tuner.spec.model import Server, ServerMode
from tuner.triton import remote
from tuner.triton.local import SHM
from tuner.triton.models_python import numpy_of_models

_MIB = 1 << 20
_SHM_WANTED = 256 * _MIB  # Docker's default is 64 MiB; each Python instance starts with 1 MiB
_BUSY = 0.5  # load average per core


@dataclass(frozen=True)
class Check:
    """One fact of the machine.

    Attributes:
        id: Stable name for scripts.
        ok: False when a run would fail or could not be trusted.
        found: What was found.
        mend: What to do about it; empty when it is fine.
    """

    id: str
    label: str
    ok: bool
    found: str
    mend: str = ""


def run_checks(
    environment: Mapping[str, str],
    *,
    server: Server | None = None,
    perf_analyzer: str | None = None,
    repository: Path | None = None,
    results: Path | None = None,
) -> list[Check]:
    """Everything a run needs, in the order it needs it.

    Args:
        environment: Variables of this process.
        server: From the spec; the default local server when None.
        perf_analyzer: Binary named in the spec, if any.
        repository: Model repository to read, and at the end to write to.
        results: Directory runs are stored in; its parent counts when it is not there yet.
    """
    wanted = server or Server()
    checks: list[Check] = []
    checks.extend(_BY_MODE[wanted.mode](wanted, environment))
    checks.append(_perf_analyzer(perf_analyzer, environment))
    checks.extend(_placeholder())
    checks += [_ports(), _gpus(environment), _shm()]
    if repository is not None:
        checks.append(_directory("repository", "model repository", repository))
    if results is not None:
        checks.append(_directory("results", "results directory", results, may_be_made=True))
    checks += [_load(), _governor()]
    return checks


def _checked(id_: str, label: str, look: Callable[[], str]) -> Check:
    """Runs a look that returns what it found, and raises when that is not good enough."""
    try:
        return Check(id_, label, ok=True, found=look())
    except TunerError as error:
        return Check(id_, label, ok=False, found=error.message, mend=error.hint)


def _tritonserver(server: Server, environment: Mapping[str, str]) -> list[Check]:
    """The server, and the NumPy of its Python models where that is not the server's own."""
    numpy: list[Check] = []

    def look() -> str:
        with binaries.tritonserver(
            server.binary, {**environment, **resolve(server.environment, environment)}
        ) as installation:
            if installation.python is not None:
                numpy.append(_numpy(installation.python))
            return (
                f"{installation.version} ({installation.binary}, from {installation.origin.value})"
            )

    return [_checked("tritonserver", "tritonserver starts", look), *numpy]


def _numpy(python: Path) -> Check:
    def look() -> str:
        return f"{numpy_of_models(python)} ({python})"

    return _checked("numpy", "NumPy of Python models", look)


def _perf_analyzer(named: str | None, environment: Mapping[str, str]) -> Check:
    def look() -> str:
        with binaries.perf_analyzer(named, environment) as installation:
            return (
                f"{installation.version} ({installation.binary}, from {installation.origin.value})"
            )

    return _checked("perf_analyzer", "perf_analyzer starts", look)


def _placeholder() -> Iterator[Check]:
    """The package of that name on PyPI holds nothing, and people install it."""
    try:
        version = importlib.metadata.version("perf-analyzer")
    except importlib.metadata.PackageNotFoundError:
        return
    if version.startswith("0."):
        yield Check(
            "perf_analyzer_package",
            "no empty perf-analyzer package",
            ok=False,
            found=f"perf-analyzer {version} from PyPI is an empty placeholder",
            mend="pip uninstall perf-analyzer; pip install tritonclient==2.51.0",
        )


def _remote(server: Server, _: Mapping[str, str]) -> list[Check]:
    def look() -> str:
        endpoints = Endpoints(server.http or "", server.grpc or "", server.metrics)
        remote.check(endpoints)
        with Control(endpoints) as control:
            return f"{control.server().version} at {server.grpc}, in explicit model control"

    return [_checked("remote", "remote server can be tuned", look)]


def _docker(_: Server, environment: Mapping[str, str]) -> list[Check]:
    return [_engine(environment)]


def _engine(environment: Mapping[str, str]) -> Check:
    label = "container engine answers"
    try:
        import docker
    except ImportError:
        return Check(
            "docker", label, ok=False, found="no docker package", mend="pip install docker"
        )
    where = environment.get("DOCKER_HOST", "the default socket")
    try:
        client = docker.from_env(environment=dict(environment), timeout=5)
        try:
            version = str(client.version().get("Version", "unknown version"))
        finally:
            client.close()
    except (docker.errors.DockerException, OSError) as error:
        return Check(
            "docker",
            label,
            ok=False,
            found=f"nothing answers at {where}: {error}",
            mend="start the engine, or set DOCKER_HOST; your user must be in the docker group",
        )
    return Check("docker", label, ok=True, found=f"{version} at {where}")


#: The server of each mode.
_BY_MODE = {
    ServerMode.LOCAL: _tritonserver,
    ServerMode.DOCKER: _docker,
    ServerMode.REMOTE: _remote,
}


def _ports() -> Check:
    def look() -> str:
        with free_ports(3) as ports:
            return f"free ones, e.g. {ports[0]}"

    try:
        return _checked("ports", "ports of 127.0.0.1", look)
    except OSError as error:
        return Check(
            "ports",
            "ports of 127.0.0.1",
            ok=False,
            found=str(error),
            mend="free some: see net.ipv4.ip_local_port_range and `ss -s`",
        )


def _gpus(environment: Mapping[str, str]) -> Check:
    gpus = host.read_gpus(environment)
    found = ", ".join(f"{gpu.name} (driver {gpu.driver})" for gpu in gpus)
    return Check("gpu", "GPUs", ok=True, found=found or "none seen: models run on the CPU")


def _shm() -> Check:
    label = "shared memory (/dev/shm)"
    try:
        free = shutil.disk_usage(SHM).free
    except OSError as error:
        return Check("shm", label, ok=False, found=str(error), mend="mount a tmpfs at /dev/shm")
    enough = free >= _SHM_WANTED
    mend = "" if enough else "start the container with --shm-size=1g"
    return Check("shm", label, ok=enough, found=f"{free / _MIB:.0f} MiB free", mend=mend)


def _directory(id_: str, label: str, path: Path, *, may_be_made: bool = False) -> Check:
    place = path
    while may_be_made and not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return Check(id_, label, ok=False, found=f"{path} is no directory", mend="correct the path")
    ok = os.access(place, os.R_OK | os.W_OK | os.X_OK)
    mend = "" if ok else f"give yourself read and write permission on {place}"
    return Check(
        id_, label, ok=ok, found=f"{path} {'can' if ok else 'cannot'} be written", mend=mend
    )


def _load() -> Check:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    quiet = load <= _BUSY * cores
    mend = "" if quiet else "stop other work: measurements made now would not repeat"
    found = f"load {load:.2f} on {cores} cores"
    return Check("load", "machine is quiet", ok=quiet, found=found, mend=mend)


def _governor() -> Check:
    governor = host.read_governor()
    fine = governor in (None, "performance")
    mend = "" if fine else "cpupower frequency-set -g performance"
    found = governor or "not visible here"
    return Check("governor", "CPU frequency governor", ok=fine, found=found, mend=mend)
