"""The launcher of a spec's server, by its mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from tuner.errors import SpecError
from tuner.machine.cpus import Cores, Sharing, share_cores
from tuner.machine.host import Host, read_host, thread_variables
from tuner.modelconfig.schema import ModelConfig
from tuner.server.binaries import tritonserver
from tuner.server.server import ServerLauncher
from tuner.spec.mistakes import Location
from tuner.spec.model import Spec
from tuner.spec.paths import variable_of
from tuner.spec.server import ServerMode, resolve
from tuner.spec.workload import SharedMemory
from tuner.triton.local import LocalLauncher
from tuner.triton.remote import RemoteLauncher, endpoints_of

#: The fields of a spec that define the server, one for each mode.
NAMED: tuple[Location, ...] = (("server", "binary"), ("server", "image"), ("server", "http"))


def server_launcher(
    spec: Spec, models: Mapping[str, ModelConfig], environment: Mapping[str, str]
) -> AbstractContextManager[ServerLauncher]:
    """The launcher of the spec's server; use it as a context manager.

    Args:
        models: Configs of the run's models in the repository, by name, parts before parents.
        environment: Variables of this process.

    Raises:
        EnvironmentNotReadyError: No tritonserver runs here; on leaving the context: a remote server
            could not be restored.
        SpecError: The mode docker without an image.
    """
    return _BY_MODE[spec.server.mode](spec, models, environment)


def cores_of(spec: Spec, sharing: Sharing | None = None) -> Cores:
    """The CPUs of this machine that server and load generator may use.

    Args:
        sharing: The decision for CPUs that the spec does not assign; None: not decided yet.

    Raises:
        EnvironmentNotReadyError: The spec names CPUs that tune may not use here.
    """
    server = spec.server.cpus if spec.server.managed else "all"
    return share_cores(server, spec.workload.cpus, sharing)


def host_of(spec: Spec, environment: Mapping[str, str]) -> Host:
    """Facts about this machine, with the thread variables that a local server inherits.

    Variables that the spec sets or searches are left out: the spec and each candidate have them.
    """
    local, searched = spec.server.mode is ServerMode.LOCAL, map(variable_of, spec.server.space)
    overridden = {*spec.server.environment, *searched}
    inherited = {k: v for k, v in environment.items() if local and k not in overridden}
    return replace(read_host(environment), threads=thread_variables(inherited))


@contextmanager
def _local(
    spec: Spec, models: Mapping[str, ModelConfig], environment: Mapping[str, str]
) -> Iterator[ServerLauncher]:
    variables = {**environment, **resolve(spec.server.environment, environment)}
    with tritonserver(spec.server.binary, variables) as program:
        installation = replace(program, cpus=cores_of(spec).server)
        server, shares = spec.server, spec.workload.shared_memory is SharedMemory.SYSTEM
        yield LocalLauncher(
            installation,
            spec.repository,
            server.args,
            server.gpus,
            shares=shares,
            models=tuple(models),
        )


@contextmanager
def _docker(
    spec: Spec, _: Mapping[str, ModelConfig], environment: Mapping[str, str]
) -> Iterator[ServerLauncher]:
    from tuner.triton.docker import DockerLauncher

    if spec.server.image is None:
        raise SpecError("server.mode is docker and server.image is missing", "name the image")
    yield DockerLauncher(
        image=spec.server.image,
        repository=spec.repository,
        args=spec.server.args,
        environment=resolve(spec.server.environment, environment),
        gpus=spec.server.gpus,
        mounts=spec.server.mounts,
        shm_size_bytes=spec.server.shm_size,
        cpus=cores_of(spec).server,
        shares=spec.workload.shared_memory is SharedMemory.SYSTEM,
        engine_environment=environment,
    )


@contextmanager
def _remote(
    spec: Spec, models: Mapping[str, ModelConfig], environment: Mapping[str, str]
) -> Iterator[ServerLauncher]:
    endpoints = endpoints_of(spec.server, environment)
    launcher = RemoteLauncher(endpoints, tuple(models), spec.server.load_timeout, models)
    yield launcher
    launcher.refuse_left_otherwise()  # not after an error, which has its own exit code


_BY_MODE: dict[ServerMode, Callable[..., AbstractContextManager[ServerLauncher]]] = {
    ServerMode.LOCAL: _local,
    ServerMode.DOCKER: _docker,
    ServerMode.REMOTE: _remote,
}
