"""The command line of a local server."""

from __future__ import annotations

from pathlib import Path

from tuner.server.binaries import Installation, Origin
from tuner.triton.local import LocalLauncher

INSTALLATION = Installation(
    binary=Path("/opt/tritonserver/bin/tritonserver"),
    version="2.51.0",
    origin=Origin.CONTAINER,
    environment={},
    backend_directory=Path("/private/backends"),
)


def command(args: tuple[str, ...] = (), server_args: tuple[str, ...] = ()) -> list[str]:
    launcher = LocalLauncher(INSTALLATION, Path("/models"), args)
    return launcher.command(
        server_args, repository=launcher.repository, ports=(1, 2, 3), shm_prefix="tune-1-"
    )


def test_it_listens_on_this_machine_only_and_loads_nothing_by_itself() -> None:
    assert command() == [
        "/opt/tritonserver/bin/tritonserver",
        "--model-repository=/models",
        "--model-control-mode=explicit",
        "--backend-directory=/private/backends",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
        "--http-port=1",
        "--grpc-port=2",
        "--metrics-port=3",
        "--backend-config=python,shm-region-prefix-name=tune-1-",
    ]


def test_its_control_is_closed_to_whoever_lacks_the_key() -> None:
    launcher = LocalLauncher(INSTALLATION, Path("/models"))
    line = launcher.command(
        (), repository=launcher.repository, ports=(1, 2, 3), shm_prefix="tune-1-", key="abc"
    )
    closed = "model-repository,shared-memory,trace,logging:tune-key=abc"
    assert line[-2:] == [f"--grpc-restricted-protocol={closed}", f"--http-restricted-api={closed}"]


def test_a_candidates_arguments_come_last() -> None:
    line = command(("--log-verbose=1",), ("--cache-config=local,size=1048576",))
    assert line[-2:] == ["--log-verbose=1", "--cache-config=local,size=1048576"]
