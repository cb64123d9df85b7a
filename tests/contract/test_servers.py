"""The contract of servers, held against the local and the remote launcher."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.triton_repository import MODEL, make_repository
from contract.server_contract import ServerCase, ServerContract, eventually

from tuner.machine.process import group_members
from tuner.server.binaries import Installation, tritonserver
from tuner.server.control import Control, ModelState
from tuner.server.server import Server
from tuner.server.shared_memory import SHM
from tuner.triton.local import LocalLauncher, LocalServer
from tuner.triton.remote import RemoteLauncher

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with tritonserver(None, os.environ) as program:
        yield program


def kill_local(server: Server) -> None:
    assert isinstance(server, LocalServer)
    os.kill(server.pid, signal.SIGKILL)


def left_of_local(server: Server) -> list[str]:
    assert isinstance(server, LocalServer)
    left = [f"process {pid}" for pid in group_members(server.pid)]
    left += [str(path) for path in Path(SHM).glob(f"tune-{os.getpid()}-*")]
    for address in (server.endpoints.http, server.endpoints.grpc, str(server.endpoints.metrics)):
        host, port = address.split(":")
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                left.append(address)
    return left


class TestLocal(ServerContract):
    @pytest.fixture
    def case(self, installation: Installation, tmp_path: Path) -> ServerCase:
        launcher = LocalLauncher(installation, make_repository(tmp_path))
        return ServerCase(launcher, MODEL, kill_local, left_of_local)


class TestRemote(ServerContract):
    """Against a second local server, which stays when the launcher's context is left."""

    @pytest.fixture
    def case(self, installation: Installation, tmp_path: Path) -> Iterator[ServerCase]:
        local = LocalLauncher(installation, make_repository(tmp_path))
        with local.launch([], tmp_path / "other.log") as theirs:

            def kill(server: Server) -> None:
                kill_local(theirs)
                eventually(lambda: not theirs.alive())  # its ports are closed a moment before

            def left(server: Server) -> list[str]:
                if not theirs.alive():
                    return []
                with Control(theirs.endpoints) as control:
                    loaded = control.state(MODEL) is ModelState.READY
                return [MODEL] if loaded else []

            yield ServerCase(RemoteLauncher(theirs.endpoints, (MODEL,)), MODEL, kill, left)
