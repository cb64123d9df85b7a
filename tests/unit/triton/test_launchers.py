"""From the spec's server to a launcher."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from tuner.errors import EnvironmentNotReadyError, ServerGoneError, SpecError
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import ModelConfig, new_config
from tuner.server.control import ModelState
from tuner.server.server import Endpoints
from tuner.spec.model import Spec
from tuner.triton import remote
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


class FakeControl(AbstractContextManager["FakeControl"]):
    """Of a server that runs a model with batches of 8, and loads nothing while it is ``gone``."""

    def __init__(self) -> None:
        self.running, self.gone = parse("max_batch_size: 8"), False

    def __exit__(self, *_: object) -> None:
        pass

    def state(self, _: str) -> ModelState:
        return ModelState.READY

    def running_config(self, _: str) -> ModelConfig:
        return self.running

    def load(self, _: str, config_json: str, deadline_s: float) -> None:
        if self.gone:
            raise ServerGoneError("it is gone")
        self.running = json_format.Parse(config_json, new_config())


def test_a_remote_server_must_be_left_as_it_was_found_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    control = FakeControl()
    monkeypatch.setattr(remote, "Control", lambda _: control)
    monkeypatch.setattr(remote, "check", lambda _: None)
    given = spec({"mode": "remote", "http": "a:1", "grpc": "a:2"})

    def serve(*gone: bool, error: type[BaseException] | None = None) -> None:
        """Serves a candidate as often, and then the server is gone or not."""
        with server_launcher(given, ("m",), {}) as launcher:
            for control.gone in gone:
                with launcher.launch([], tmp_path / "log"):
                    control.running = parse("max_batch_size: 4")
            if error is not None:
                raise error

    serve(True, False)
    assert control.running.max_batch_size == 8
    with pytest.raises(EnvironmentNotReadyError, match="a:2 is not as it was found: m: it is gone"):
        serve(False, True)
    with pytest.raises(KeyboardInterrupt):
        serve(True, error=KeyboardInterrupt)


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
