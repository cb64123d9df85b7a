"""tritonserver in a container, on any engine with Docker's API (Docker, Podman).

This module uses the docker SDK rather than Model Analyzer's ``TritonServerDocker``: that class
publishes its ports on every interface, builds a shell command from its arguments, downloads images
of many gigabytes without asking, and leaves its container running when it is killed. docs/docker.md
says how containers are removed after a kill.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tuner.errors import EnvironmentNotReadyError
from tuner.machine import process
from tuner.machine.host import has_gpu
from tuner.machine.process import ADDRESS, free_ports
from tuner.modelconfig.files import ModelFiles
from tuner.server.health import SERVICES, endpoints_at, ready_server
from tuner.server.server import NO_VARIABLES, Endpoints, Place, Variables, key_arguments
from tuner.server.shared_memory import SHM, SharedRegion, shared_region, shm_names
from tuner.spec.fields import Gpus
from tuner.spec.server import ServerMode
from tuner.triton.engine import engine, explained, local_image
from tuner.triton.image import BACKENDS, list_backends
from tuner.triton.needs import backend_directory, backends_of, refuse_lacking
from tuner.writing import open_run_file

_INSIDE_PORTS = (8000, 8001, 8002)  # nothing else uses them in a separate network
_REPOSITORY_INSIDE = "/models"
_LOG_END_S = 5.0
_LABEL = "tuner.run"
_ENDED = ("exited", "dead")
#: Lets root in the container read a repository that only its owner may read. No other capability of
#: root is needed; GPUs are devices, which need none.
_CAPABILITIES = ("DAC_OVERRIDE",)
#: Limit of processes and threads; a machine with many cores needs some thousands. It is half of the
#: smallest default of the kernel's pid_max, so that a fork bomb leaves the other half to the host.
_MOST_PIDS = 1 << 14
#: Environment variable of NVIDIA's images.
_VERSION_VARIABLE = "TRITON_SERVER_VERSION"
_REAPER = str(Path(__file__).with_name("container_reaper.py"))
_logger = logging.getLogger(__name__)


class Network(Enum):
    """How the host reaches the server.

    HOST has no address translation in the measured path; the server listens on 127.0.0.1 only.
    With PUBLISHED, the engine forwards ports of 127.0.0.1, for engines whose host network is not
    this machine's (rootless engines, Docker Desktop).
    """

    HOST = "host"
    PUBLISHED = "bridge"


@dataclass(frozen=True)
class DockerServer:
    """A tritonserver in a container; see `tuner.server.server.Server`."""

    endpoints: Endpoints
    container_id: str
    _container: Any = field(repr=False)
    _log_follower: threading.Thread = field(repr=False)
    _log: Path
    _log_start: int

    def alive(self) -> bool:
        if _running(self._container):
            return True
        self._log_follower.join(_LOG_END_S)  # its last output may still arrive
        return False

    def log_tail(self, lines: int = 40) -> str:
        return process.tail(self._log, lines, self._log_start)

    def put_back(self) -> int:
        return 0  # a cpuset holds all threads


@dataclass(frozen=True)
class DockerLauncher:
    """Starts tritonserver in a container; see `tuner.server.server.ServerLauncher`.

    Attributes:
        image: An image on this machine with `tritonserver` on its PATH.
        engine_environment: Variables of this process, such as `DOCKER_HOST`, that name the engine.
        args: Arguments of tritonserver from the spec; a candidate's follow, and override them.
        environment: Variables of the container; None removes a variable of the image.
        gpus: GPUs that the container sees; "all" is none on a machine without GPUs.
        mounts: Container paths by host path, read-only.
        shm_size_bytes: Size of the container's `/dev/shm`.
        cpus: Numbers of the CPUs that it may use with the host's network; empty: any.
        start_timeout_s: A server that is not ready in time counts as hung.
        network: How the host reaches the server; None: as the engine needs it.
        shares: Its servers read the inputs of requests from shared memory.
    """

    image: str
    repository: Path
    engine_environment: Mapping[str, str] = field(repr=False)
    args: tuple[str, ...] = ()
    environment: Variables = field(default_factory=dict, repr=False)
    gpus: Gpus = "all"
    mounts: Mapping[str, str] = field(default_factory=dict)
    shm_size_bytes: int = 1 << 30
    cpus: tuple[int, ...] = ()
    start_timeout_s: float = 120.0
    network: Network | None = None
    shares: bool = False
    restartable: ClassVar[bool] = True
    place: ClassVar[Place] = Place.CONTAINER
    python: ClassVar[None] = None

    def command_line(self) -> list[str]:
        return self._command(Network.HOST, (0, 0, 0), (), "KEY")

    def on(self, cpus: tuple[int, ...]) -> DockerLauncher:
        return replace(self, cpus=cpus)

    @contextmanager
    def launch(
        self, server_args: Sequence[str], log: Path, environment: Variables = NO_VARIABLES
    ) -> Iterator[DockerServer]:
        launcher = replace(self, environment={**self.environment, **environment})
        with engine(self.engine_environment) as client:
            _remove_leftovers(client)
            network = self.network or _suitable_network(client)
            start = partial(launcher._started, client, network, server_args, log)
            with ready_server(start, self.start_timeout_s) as server:
                yield server

    def version(self) -> str:
        """The server's version, if the image states it, and the id of the image."""
        with engine(self.engine_environment) as client:
            image = local_image(client, self.image)
            variables = image.attrs.get("Config", {}).get("Env") or ()
        named = dict(variable.partition("=")[::2] for variable in variables)
        return f"{named.get(_VERSION_VARIABLE, 'unknown version')}, image {image.id}"

    def check_backends(self, models: Sequence[ModelFiles]) -> str:
        named = str(backend_directory(self.args) or BACKENDS)
        with engine(self.engine_environment) as client:
            local_image(client, self.image)
            has = list_backends(client, self._any_options(self.mounts), named)
        if has is None:
            return "known once a server is started"
        whose = f"the image {self.image}"
        return refuse_lacking(backends_of(models), has, whose, ServerMode.DOCKER)

    def options(
        self,
        network: Network,
        ports: Sequence[int],
        server_args: Sequence[str],
        key: str | None = None,
        shared: SharedRegion | None = None,
    ) -> dict[str, Any]:
        """Arguments of the SDK's ``containers.create`` for a server.

        Args:
            ports: Ports of `SERVICES` in the container.
            key: Key for the server's control; None: without restriction.
            shared: The only file of this machine's `/dev/shm` that the container sees.

        Raises:
            EnvironmentNotReadyError: A path to mount does not exist.
        """
        from docker.types import Mount

        mounts = {str(self.repository.resolve()): _REPOSITORY_INSIDE, **self.mounts}
        variables = dict(self.environment)
        if self.gpus == "none":  # for engines with NVIDIA's runtime as the default
            variables.setdefault("NVIDIA_VISIBLE_DEVICES", "void")
        options = {
            **self._any_options(mounts),
            "command": self._command(network, ports, server_args, key),
            "environment": variables,
            "shm_size": self.shm_size_bytes,
            "device_requests": _device_requests(self.gpus),
            "network_mode": network.value,
        }
        if self.cpus and network is Network.HOST:
            options["cpuset_cpus"] = ",".join(map(str, self.cpus))
        if shared is not None:
            options["mounts"].append(Mount(f"{SHM}/{shared.name}", str(shared.path), "bind"))
        if network is Network.PUBLISHED:
            options["ports"] = {f"{port}/tcp": (ADDRESS, None) for port in ports}
        return options

    def _any_options(self, mounts: Mapping[str, str]) -> dict[str, Any]:
        """Arguments of ``containers.create`` for any container of the image."""
        from docker.types import Mount

        return {
            "image": self.image,
            "mounts": [
                Mount(inside, _existing(path), "bind", read_only=True)
                for path, inside in mounts.items()
            ],
            "pids_limit": _MOST_PIDS,
            "labels": {_LABEL: process.current_owner()},
            "cap_drop": ["ALL"],
            "cap_add": list(_CAPABILITIES),
            "security_opt": ["no-new-privileges"],
        }

    def _command(
        self, network: Network, ports: Sequence[int], server_args: Sequence[str], key: str | None
    ) -> list[str]:
        address = ADDRESS if network is Network.HOST else "0.0.0.0"  # noqa: S104 - the container's
        return [
            "tritonserver",
            f"--model-repository={_REPOSITORY_INSIDE}",
            "--model-control-mode=explicit",
            *(f"--{service}-address={address}" for service in SERVICES),
            *(f"--{s}-port={port}" for s, port in zip(SERVICES, ports, strict=True)),
            *key_arguments(key),
            *self.args,
            *server_args,
        ]

    @contextmanager
    def _started(
        self, client: Any, network: Network, server_args: Sequence[str], log: Path, key: str | None
    ) -> Iterator[DockerServer]:
        """A container with a server that may not be ready; removes it, and completes its log."""
        with open_run_file(log) as file:
            log_start = file.seek(0, os.SEEK_END)
        with free_ports(len(SERVICES)) as free:
            ports: Sequence[int] = free if network is Network.HOST else _INSIDE_PORTS
        # First, since an engine that searches registries for the image takes long to refuse.
        local_image(client, self.image)
        with ExitStack() as after_removal, ExitStack() as running:
            names = after_removal.enter_context(shm_names())
            shared = after_removal.enter_context(shared_region(names)) if self.shares else None
            options = self.options(network, ports, server_args, key, shared)
            with explained():
                container = client.containers.create(**options)
            left = [str(shared.path)] if shared else []
            running.enter_context(_reaped(container, self.engine_environment, left))
            follower = threading.Thread(target=_follow_log, args=(container, log), daemon=True)
            with explained():
                container.start()
            after_removal.enter_context(process.tracked_container(container.id))
            follower.start()
            after_removal.callback(follower.join, _LOG_END_S)
            if network is Network.PUBLISHED:
                container.reload()
                bindings = [container.ports.get(f"{port}/tcp") for port in ports]
                ports = [
                    int(b[0]["HostPort"]) if b else 0 for b in bindings
                ]  # 0: the container has ended
            at = endpoints_at(ports, key, shared)
            yield DockerServer(at, container.id, container, follower, log, log_start)


@contextmanager
def _reaped(container: Any, environment: Mapping[str, str], files: Sequence[str]) -> Iterator[None]:
    """Removes container and files on leaving the context, and if this process dies."""
    from tuner.triton import container_reaper

    reaper = subprocess.Popen(
        [sys.executable, "-P", _REAPER, container.id, *files],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert reaper.stdin is not None
        reaper.stdin.close()  # the reaper waits for this
        if reaper.wait() != 0:
            container_reaper.remove(container.client, container.id)


def _follow_log(container: Any, log: Path) -> None:
    """Copies the container's output to the file until the container ends."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    with (
        suppress(DockerException, RequestException, OSError),
        open_run_file(log) as file,
        closing(container.logs(stream=True, follow=True)) as chunks,
    ):
        for chunk in chunks:
            file.write(chunk)
            file.flush()


def _running(container: Any) -> bool:
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        container.reload()
    except (DockerException, RequestException):
        return False
    return bool(container.status == "running")


def _existing(path: str) -> str:
    if not Path(path).exists():  # some engines would create an empty directory
        raise EnvironmentNotReadyError(
            f"{path} cannot be mounted: it does not exist", "check server.mounts in the spec"
        )
    return path


def _device_requests(gpus: Gpus) -> list[Any]:
    from docker.types import DeviceRequest

    if gpus == "none" or (gpus == "all" and not has_gpu()):
        return []
    if gpus == "all":
        return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return [DeviceRequest(device_ids=[str(gpu) for gpu in gpus], capabilities=[["gpu"]])]


def _suitable_network(client: Any) -> Network:
    info = client.info()
    rootless = any("rootless" in option for option in info.get("SecurityOptions") or ())
    desktop = "Docker Desktop" in info.get("OperatingSystem", "")
    return Network.PUBLISHED if rootless or desktop else Network.HOST


def _remove_leftovers(client: Any) -> None:
    """Removes containers whose launcher died together with its reaper."""
    from docker.errors import APIError

    from tuner.triton import container_reaper

    for container in client.api.containers(all=True, filters={"label": _LABEL}):
        ended = container["State"] in _ENDED
        if process.owner_gone(container["Labels"].get(_LABEL, ""), ended=ended):
            name = container["Id"]
            _logger.warning("removing container %s of a killed tune process", name[:12])
            with suppress(APIError):  # another tune process may be removing it
                container_reaper.remove(client, name)
