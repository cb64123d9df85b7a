"""Checks of this machine; each reports a result, and how to fix a problem."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tuner import extras
from tuner.errors import EnvironmentNotReadyError, TunerError
from tuner.extras import Extra
from tuner.machine import host
from tuner.machine.process import free_ports
from tuner.machine.quota import read_quota
from tuner.modelconfig.files import model_names
from tuner.modelconfig.served import ServedModel
from tuner.server import binaries
from tuner.server.control import Control
from tuner.server.numpy2 import in_python, numpy_of_models
from tuner.server.server import ServerLauncher
from tuner.server.shared_memory import SHM
from tuner.spec.load import LoadedSpec
from tuner.spec.mistakes import Location, listed
from tuner.spec.server import ServerMode, ServerSpec, resolve
from tuner.spec.units import count_text, digits
from tuner.triton import remote
from tuner.triton.docker import DockerLauncher
from tuner.triton.engine import engine
from tuner.triton.launchers import NAMED
from tuner.triton.local import LocalLauncher
from tuner.triton.needs import holes_of, refuse_names

_MIB = 1 << 20
_SHM_WANTED = 256 * _MIB  # Docker's default is 64 MiB; each Python instance starts with 1 MiB
_DISK_WANTED = 16 * _MIB  # a run's files take some MiB, with logs of 8 MiB at most
_BUSY = 0.5  # load average per core

_Models = Callable[[], Iterable[ServedModel]]
_Note = Callable[[str], None]


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check.

    Attributes:
        id: Name for programs.
        label: Name for users.
        ok: False if a run would fail.
        found: What the check found.
        fix: How to fix a problem, or a remark; empty if there is none.
    """

    id: str
    label: str
    ok: bool
    found: str
    fix: str = ""


def run_checks(
    environment: Mapping[str, str],
    *,
    server: ServerSpec | None = None,
    models: _Models = lambda: (),
    perf_analyzer: str | None = None,
    repository: Path | None = None,
    results: Path | None = None,
    note: _Note | None = None,
) -> list[MachineCheck]:
    """Checks everything that a run needs, in the order of use.

    Args:
        server: The server of the spec; None: the default local server.
        models: Reads the models of the spec.
        perf_analyzer: perf_analyzer of the spec; None: search for it.
        repository: Model repository that the run reads and writes.
        results: Directory that runs are stored in, or will be created in.
        note: Receives lines about the download of a server if there is none; None: do not download.
    """
    wanted = server or ServerSpec()
    packages = checked("packages", "run dependencies", _packages)
    there = packages.ok or wanted.mode is ServerMode.LOCAL
    return [
        packages,
        *(_BY_MODE[wanted.mode](wanted, environment, models, note) if there else ()),
        checked(
            "perf_analyzer",
            "perf_analyzer starts",
            lambda: _perf_analyzer(perf_analyzer, environment),
        ),
        checked("ports", "ports of 127.0.0.1", _ports),
        checked("gpu", "GPUs", lambda: _gpus(environment)),
        checked("shm", "shared memory (/dev/shm)", _shm),
        *_directories(repository, results),
        _load(),
        *_quota(),
        _governor(),
    ]


#: Fields of a spec that a check is about.
_PLACES: dict[str, tuple[Location, ...]] = {
    **dict.fromkeys(("tritonserver", "docker", "image", "remote"), NAMED),
    "perf_analyzer": (("workload", "perf_analyzer"),),
    "repository": (("repository",),),
}


def placed(check: MachineCheck, loaded: LoadedSpec) -> MachineCheck:
    """Adds the position in the spec to a failed check."""
    place = "" if check.ok else loaded.place_of(*_PLACES.get(check.id, ()))
    return replace(check, found=f"{place}: {check.found}") if place else check


def checked(id_: str, label: str, look: Callable[[], str]) -> MachineCheck:
    """Runs a check, which returns what it found, or raises if a run would fail."""
    try:
        return MachineCheck(id_, label, ok=True, found=look())
    except TunerError as error:
        return MachineCheck(id_, label, ok=False, found=error.message, fix=error.hint)


def _packages() -> str:
    if (lacking := extras.lacking(Extra.RUN)) is not None:
        raise lacking
    return "installed"


def _tritonserver(
    server: ServerSpec, environment: Mapping[str, str], models: _Models, note: _Note | None = None
) -> list[MachineCheck]:
    """Checks of the server, of its backends, and of the NumPy of Python models."""
    more: list[MachineCheck] = []

    def look() -> str:
        variables = {**environment, **resolve(server.environment, environment)}
        if note is not None:
            binaries.fetch_tritonserver(server.binary, variables, note)
        with binaries.tritonserver(server.binary, variables) as installation:
            if (python := installation.python) is not None:
                ask = partial(_numpy, python, models)
                more.append(checked("numpy", "NumPy of Python models", ask))
            more.append(_backends(LocalLauncher(installation, Path(), server.args), models))
            return _installation_text(installation)

    return [_warned(checked("tritonserver", "tritonserver starts", look)), *more]


def _backends(launcher: ServerLauncher, models: _Models) -> MachineCheck:
    """Checks the backends of the models, as far as they are known without a running server."""

    def look() -> str:
        files = [model.files for model in models()]
        refuse_names(launcher.version(), files)
        return launcher.check_backends(files)

    return checked("backends", "model backends", look)


def _warned(check: MachineCheck) -> MachineCheck:
    """Adds a remark about public vulnerabilities of the server's version."""
    return replace(check, fix=holes_of(check.found)) if check.ok else check


def _numpy(python: Path, models: _Models) -> str:
    version = numpy_of_models(python, in_python(models()))
    without = "" if version.startswith("1.") else ", so without strings"
    return f"{version} ({python}){without}"


def _installation_text(installation: binaries.Installation) -> str:
    return f"{installation.version} ({installation.binary}, from {installation.origin.value})"


def _perf_analyzer(named: str | None, environment: Mapping[str, str]) -> str:
    if not binaries.has_perf_analyzer(named, environment):
        return "not installed: tune's own client measures"
    with binaries.perf_analyzer(named, environment) as installation:
        return _installation_text(installation)


def _remote(
    server: ServerSpec, environment: Mapping[str, str], models: _Models, _: object = None
) -> list[MachineCheck]:
    def look() -> str:
        endpoints = remote.endpoints_of(server, environment)
        remote.check(endpoints)
        launcher = remote.RemoteLauncher(endpoints, ())
        more.append(_backends(launcher, models))
        with Control(endpoints) as control:
            return f"{control.version()} at {server.grpc}, in explicit model control"

    more: list[MachineCheck] = []
    return [_warned(checked("remote", "remote server can be tuned", look)), *more]


def _docker(
    server: ServerSpec, environment: Mapping[str, str], models: _Models, _: object = None
) -> list[MachineCheck]:
    """Checks of the engine and, if it answers, of the image and its backends."""
    docker = checked("docker", "container engine answers", lambda: _engine(environment))
    if not docker.ok or server.image is None:
        return [docker]
    launcher = DockerLauncher(server.image, Path(), environment, server.args, mounts=server.mounts)
    image = _warned(checked("image", f"image {server.image}", launcher.version))
    return [docker, image, *([_backends(launcher, models)] if image.ok else ())]


def _engine(environment: Mapping[str, str]) -> str:
    with engine(environment) as client:
        return str(client.version().get("Version", "unknown version"))


#: Checks of the server, by mode.
_BY_MODE: dict[ServerMode, Callable[..., list[MachineCheck]]] = {
    ServerMode.LOCAL: _tritonserver,
    ServerMode.DOCKER: _docker,
    ServerMode.REMOTE: _remote,
}


def _ports() -> str:
    try:
        with free_ports(3) as ports:
            return f"free ports exist, e.g. {ports[0]}"
    except OSError as error:
        fix = "free some: see net.ipv4.ip_local_port_range and `ss -s`"
        raise EnvironmentNotReadyError(str(error), fix) from error


def _gpus(environment: Mapping[str, str]) -> str:
    gpus = host.read_gpus(environment)
    names = listed(f"{gpu.name} (driver {gpu.driver})" for gpu in gpus)
    return names or "none seen: models run on the CPU"


def _shm() -> str:
    try:
        free = shutil.disk_usage(SHM).free
    except OSError as error:
        raise EnvironmentNotReadyError(str(error), "mount a tmpfs at /dev/shm") from error
    free_text = f"{free / _MIB:.0f} MiB free"
    if free < _SHM_WANTED:
        raise EnvironmentNotReadyError(free_text, "start the container with --shm-size=1g")
    return free_text


def _directories(repository: Path | None, results: Path | None) -> Iterator[MachineCheck]:
    if repository is not None:
        yield checked("repository", "model repository", partial(_repository, repository))
    if results is not None:
        place = results
        while not os.access(place, os.F_OK) and place != place.parent:
            place = place.parent
        yield checked("results", "results directory", partial(_writable, results, place))


def _repository(path: Path) -> str:
    model_names(path)  # raises if the repository cannot be read
    return _writable(path, path)


def _writable(path: Path, place: Path) -> str:
    """Checks that ``path`` can be written; ``place``: it, or its nearest existing ancestor."""
    if not place.is_dir():
        raise EnvironmentNotReadyError(f"{path} is not a directory", "correct the path")
    if os.access(place, os.R_OK | os.W_OK | os.X_OK):
        if (free := shutil.disk_usage(place).free) >= _DISK_WANTED:
            return f"{path} can be written"
        fix = "free some space, or name another directory"
        raise EnvironmentNotReadyError(f"{path}: {free / _MIB:.0f} MiB free", fix)
    fix = f"give yourself read and write permission on {place}"
    raise EnvironmentNotReadyError(f"{path} cannot be written", fix)


def _load() -> MachineCheck:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    noisy = load > _BUSY * cores
    fix = "stop other work: measurements taken now would not be repeatable" if noisy else ""
    load_text = f"load {load:.2f} on {count_text(cores, 'core')}"
    return MachineCheck("load", "machine is quiet", True, load_text, fix)


def _quota() -> Iterator[MachineCheck]:
    """A remark on the CPU quota of the container or control group, if there is one."""
    if (quota := read_quota()) is not None:
        cpus, count = digits(quota.cpus, 3), count_text(len(os.sched_getaffinity(0)), "CPU")
        quota_text = f"{cpus} of {count}: {count_text(quota.full_cpus, 'core')} for a server"
        fix = "runtimes that start a thread for each CPU are throttled: set their counts"
        yield MachineCheck("quota", "CPU quota", True, quota_text, fix)


def _governor() -> MachineCheck:
    governor = host.read_governor()
    fine = governor in (None, "performance")
    fix = "" if fine else "cpupower frequency-set -g performance"
    return MachineCheck(
        "governor", "CPU frequency governor", True, governor or "not visible here", fix
    )
