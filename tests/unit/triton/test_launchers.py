"""From the spec's server to a launcher."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.errors import SpecError
from tuner.server.server import Endpoints
from tuner.spec.model import Spec
from tuner.triton.docker import DockerLauncher
from tuner.triton.launchers import server_launcher
from tuner.triton.remote import RemoteLauncher


def spec(server: dict[str, Any]) -> Spec:
    return Spec.model_validate(
        {
            "model": "m",
            "repository": "/models",
            "slo": ["p99_latency <= 60ms"],
            "space": {"max_batch_size": {"choice": [1, 2]}},
            "server": server,
        }
    )


def test_remote_takes_its_addresses_from_the_spec() -> None:
    given = spec({"mode": "remote", "http": "a:1", "grpc": "a:2", "load_timeout": "30s"})
    with server_launcher(given, ("m",), {}) as launcher:
        assert launcher == RemoteLauncher(Endpoints("a:1", "a:2", None), ("m",), 30.0)


def test_docker_takes_its_engine_from_the_environment() -> None:
    given = spec({"mode": "docker", "image": "triton:1", "gpus": [0], "args": ["--log-verbose=1"]})
    with server_launcher(given, ("m",), {"DOCKER_HOST": "unix:///s"}) as launcher:
        assert isinstance(launcher, DockerLauncher)
        assert launcher.image == "triton:1"
        assert launcher.gpus == (0,)
        assert launcher.args == ("--log-verbose=1",)
        assert launcher.engine_environment["DOCKER_HOST"] == "unix:///s"
        assert launcher.restartable


def test_what_a_mode_needs_must_be_there() -> None:
    server: dict[str, Any] = {"mode": "docker"}
    with pytest.raises(SpecError, match="missing"):
        with server_launcher(spec(server), ("m",), {}):
            pass
