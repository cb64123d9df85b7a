"""The contract of servers, held against the docker launcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.triton_repository import MODEL, make_repository
from contract.server_contract import ServerCase, ServerContract

from tuner.server.server import Server
from tuner.triton.docker import DockerLauncher, DockerServer

pytestmark = pytest.mark.docker


class TestDocker(ServerContract):
    @pytest.fixture
    def case(self, engine: Any, launcher: DockerLauncher, tmp_path: Path) -> ServerCase:
        def kill(server: Server) -> None:
            assert isinstance(server, DockerServer)
            engine.api.kill(server.container_id)

        def left(server: Server) -> list[str]:
            assert isinstance(server, DockerServer)
            containers = [container["Id"] for container in engine.api.containers(all=True)]
            return [name for name in containers if name == server.container_id]

        over_repository = replace(launcher, repository=make_repository(tmp_path))
        return ServerCase(over_repository, MODEL, kill, left)
