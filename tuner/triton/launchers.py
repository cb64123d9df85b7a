"""The spec's server as a launcher, by its mode."""

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

#: Where a spec says which server it is, one for each mode.
NAMED: tuple[Location, ...] = (("server", "binary"), ("server", "image"), ("server", "http"))


def server_launcher(
    spec: Spec, models: Mapping[str, ModelConfig], environment: Mapping[str, str]
) -> AbstractContextManager[ServerLauncher]:
    """What starts the server the spec asks for; use it as a context manager.

    Args:
        models: Those of the run as their files say, by name, parts before parents.

    Raises:
        EnvironmentNotReadyError: There is no tritonserver that runs here; on leaving: a remote
            server is not as it was found.
        SpecError: A remote server without its addresses.
    """
    return _BY_MODE[spec.server.mode](spec, models, environment)


def cores_of(spec: Spec, sharing: Sharing | None = None) -> Cores:
    """The CPUs of this machine that server and load generator of a spec may use.

    Args:
        sharing: Decided where the spec leaves them open; None: not yet.

    Raises:
        EnvironmentNotReadyError: The spec names CPUs that tune may not use here.
    """
    server = spec.server.cpus if spec.server.managed else "all"
    return share_cores(server, spec.workload.cpus, sharing)


def host_of(spec: Spec, environment: Mapping[str, str]) -> Host:
    """Facts of this machine, with the variables for threads that a server here inherits.

    Those that the spec adds are among its own facts, those that it searches in each candidate.
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
    launcher.refuse_left_otherwise()  # an error that passes has its own exit code


_BY_MODE: dict[ServerMode, Callable[..., AbstractContextManager[ServerLauncher]]] = {
    ServerMode.LOCAL: _local,
    ServerMode.DOCKER: _docker,
    ServerMode.REMOTE: _remote,
}
