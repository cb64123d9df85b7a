"""tritonserver as a child process on free ports of 127.0.0.1."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from tuner.errors import ServerGoneError, SpecError
from tuner.triton import health, process
from tuner.triton.binaries import Installation
from tuner.triton.mirror import mirrored
from tuner.triton.ports import ADDRESS, free_ports
from tuner.triton.server import Endpoints

SHM = "/dev/shm"  # noqa: S108 - where POSIX shared memory lives on Linux
_SERVICES = ("http", "grpc", "metrics")
_PORT_ATTEMPTS = 3
_launches = itertools.count()

#: Set here, and so not free to the spec or a candidate.
OWNED_ARGS = (
    "--model-repository",
    "--model-store",
    "--model-control-mode",
    *(f"--{service}-{what}" for service in _SERVICES for what in ("address", "port")),
    *(f"--allow-{service}" for service in _SERVICES),
)


@dataclass(frozen=True)
class LocalServer:
    """A tritonserver process; see `tuner.triton.server.Server`."""

    endpoints: Endpoints
    pid: int
    _process: subprocess.Popen[bytes]
    _log: Path
    _log_start: int

    def alive(self) -> bool:
        return self._process.poll() is None

    def log_tail(self, lines: int = 40) -> str:
        return process.tail(self._log, lines, self._log_start)


@dataclass(frozen=True)
class LocalLauncher:
    """Starts the installed tritonserver; see `tuner.triton.server.ServerLauncher`.

    The server is given a mirror of the repository, so that nothing is written into the real one.

    Attributes:
        args: Arguments from the spec; a candidate's come after them and win.
        gpus: GPUs the server may see.
        start_timeout_s: A server that is not ready by then counts as hung.
    """

    installation: Installation
    repository: Path
    args: tuple[str, ...] = ()
    gpus: Literal["all", "none"] | tuple[int, ...] = "all"
    start_timeout_s: float = 60.0
    restartable: ClassVar[bool] = True

    def command(
        self,
        server_args: Sequence[str],
        *,
        repository: Path,
        ports: Sequence[int],
        shm_prefix: str,
    ) -> list[str]:
        """The exact command line.

        Args:
            repository: The real one, or its mirror.
            server_args: A candidate's arguments.
            ports: HTTP, gRPC, metrics.
            shm_prefix: Start of the names of its files in /dev/shm.

        Raises:
            SpecError: An argument is one of `OWNED_ARGS`.
        """
        given = [*self.args, *server_args]
        for argument in given:
            if argument.partition("=")[0] in OWNED_ARGS:
                raise SpecError(
                    f"tritonserver argument {argument}: this one is set by tune",
                    "remove it from server.args",
                )
        directories = {
            "--backend-directory": self.installation.backend_directory,
            "--cache-directory": self.installation.cache_directory,
        }
        return [
            str(self.installation.binary),
            f"--model-repository={repository}",
            "--model-control-mode=explicit",
            *(f"{flag}={path}" for flag, path in directories.items() if path is not None),
            *(f"--{service}-address={ADDRESS}" for service in _SERVICES),
            *(f"--{s}-port={port}" for s, port in zip(_SERVICES, ports, strict=True)),
            f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
            *given,
        ]

    @contextmanager
    def launch(self, server_args: Sequence[str], log: Path) -> Iterator[LocalServer]:
        with ExitStack() as stack:
            yield self._started(stack, server_args, log)

    def _started(self, stack: ExitStack, server_args: Sequence[str], log: Path) -> LocalServer:
        """A ready server, owned by ``stack``; started again when somebody took one of its ports."""
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            with ExitStack() as attempt:
                server = attempt.enter_context(self._running(server_args, log))
                try:
                    health.wait_until_ready(server, self.start_timeout_s)
                except ServerGoneError as error:
                    if attempts_left and "already in use" in error.message:
                        continue
                    raise
                stack.enter_context(attempt.pop_all())
                return server
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _running(self, server_args: Sequence[str], log: Path) -> Iterator[LocalServer]:
        shm_prefix = f"tune-{os.getpid()}-{next(_launches)}-"
        with ExitStack() as stack:
            repository = stack.enter_context(mirrored(self.repository))
            with free_ports(len(_SERVICES)) as ports:
                command = self.command(
                    server_args, repository=repository, ports=ports, shm_prefix=shm_prefix
                )
            output = stack.enter_context(log.open("ab"))
            running = stack.enter_context(
                process.child(
                    command,
                    env=self._environment(),
                    stdout=output,
                    leftovers=[f"{SHM}/{shm_prefix}*", str(repository)],
                )
            )
            endpoints = Endpoints(*(f"{ADDRESS}:{port}" for port in ports))
            yield LocalServer(endpoints, running.pid, running, log, output.tell())

    def _environment(self) -> Mapping[str, str]:
        if self.gpus == "all":
            return self.installation.environment
        visible = "" if self.gpus == "none" else ",".join(map(str, self.gpus))
        return {**self.installation.environment, "CUDA_VISIBLE_DEVICES": visible}
