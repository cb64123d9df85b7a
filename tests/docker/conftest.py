"""A container engine and the stand-in image; `setup.sh` installs both."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest

from tuner.triton.docker import DockerLauncher

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1] / "model_repository"
IMAGE = "local/tritonserver-stand-in:24.10"


@pytest.fixture(scope="session")
def engine_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Variables that lead to the engine: Docker's own DOCKER_HOST if set, else Podman's service."""
    if "DOCKER_HOST" in os.environ:
        yield dict(os.environ)
        return
    podman = shutil.which("podman")
    if podman is None:
        pytest.fail("no container engine: run tests/docker/setup.sh first")
    socket = tmp_path_factory.mktemp("engine") / "engine.sock"
    service = subprocess.Popen(
        [podman, "system", "service", "--time=0", f"unix://{socket}"],
        env={**os.environ, "CONTAINERS_CONF": str(HERE / "containers.conf")},
    )
    try:
        deadline = time.monotonic() + 30
        while not socket.exists():
            assert service.poll() is None, "podman system service ended"
            assert time.monotonic() < deadline, "podman system service does not answer"
            time.sleep(0.05)
        yield {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
    finally:
        service.terminate()
        service.wait(30)


@pytest.fixture
def engine(engine_environment: Mapping[str, str]) -> Iterator[Any]:
    client = docker.from_env(environment=dict(engine_environment))
    yield client
    client.close()


@pytest.fixture
def launcher(engine_environment: Mapping[str, str]) -> DockerLauncher:
    return DockerLauncher(IMAGE, REPOSITORY, engine_environment=engine_environment)
