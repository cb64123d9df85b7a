"""From the spec's server to a launcher."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from tuner.errors import EnvironmentNotReadyError, ServerGoneError, SpecError
from tuner.modelconfig.message import parse, to_load_json
from tuner.modelconfig.schema import ModelConfig, new_config
from tuner.server.control import ModelState
from tuner.server.server import Endpoints, ServerLauncher
from tuner.spec.model import Spec
from tuner.triton import remote
from tuner.triton.docker import DockerLauncher
from tuner.triton.launchers import server_launcher
from tuner.triton.remote import INITIAL_CONFIGS, RemoteLauncher

FILE = parse('max_batch_size: 2 parameters { key: "k" value { string_value: "own" } }')


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
    with server_launcher(given, {"m": FILE}, {}) as launcher:
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


def test_remote_server_must_be_restored_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    control = FakeControl()
    monkeypatch.setattr(remote, "Control", lambda _: control)
    monkeypatch.setattr(remote, "check", lambda _: None)
    given = spec({"mode": "remote", "http": "a:1", "grpc": "a:2"})

    def serve(*gone: bool, error: type[BaseException] | None = None) -> None:
        """Serves a candidate as often, and then the server is gone or not."""
        with server_launcher(given, {"m": FILE}, {}) as launcher:
            for control.gone in gone:
                with launcher.launch([], tmp_path / "log"):
                    control.running = parse("max_batch_size: 4")
            if error is not None:
                raise error

    serve(True, False)
    assert control.running.max_batch_size == 8
    with pytest.raises(EnvironmentNotReadyError, match="a:2 were not restored: m: it is gone"):
        serve(False, True)
    with pytest.raises(KeyboardInterrupt):
        serve(True, error=KeyboardInterrupt)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[FakeControl, Path]:
    """A server that was left with a candidate, and the file that says what it ran before."""
    control = FakeControl()
    monkeypatch.setattr(remote, "Control", lambda _: control)
    monkeypatch.setattr(remote, "check", lambda _: None)
    control.running = parse(
        'max_batch_size: 8 parameters { key: "k" value { string_value: "own" } }'
    )
    with pytest.raises(EnvironmentNotReadyError, match="were not restored"):
        with remote_launcher() as launcher, launcher.launch([], tmp_path / "log"):
            control.running, control.gone = parse("max_batch_size: 4"), True
    control.gone = False
    return control, tmp_path / INITIAL_CONFIGS


def remote_launcher() -> AbstractContextManager[ServerLauncher]:
    given = spec({"mode": "remote", "http": "a:1", "grpc": "a:2"})
    return server_launcher(given, {"m": FILE}, {})


def test_a_remote_server_is_given_no_variables(tmp_path: Path) -> None:
    with remote_launcher() as launcher:
        with pytest.raises(EnvironmentNotReadyError, match="the variables OMP_NUM_THREADS"):
            with launcher.launch([], tmp_path / "log", {"OMP_NUM_THREADS": "1"}):
                pass


def put_back(kept: Path) -> None:
    with remote_launcher() as launcher, launcher.launch([], kept.with_name("log")):
        pass


def test_a_server_that_a_killed_run_left_with_a_candidate_is_put_back_by_the_next_launch(
    left: tuple[FakeControl, Path],
) -> None:
    control, kept = left
    assert control.running.max_batch_size == 4
    put_back(kept)
    assert control.running.max_batch_size == 8
    assert control.running.parameters["k"].string_value == "own"
    assert not kept.exists()


@pytest.mark.parametrize("name", [INITIAL_CONFIGS, "server_found.new"])
def test_restoring_a_server_writes_through_no_link(
    name: str, left: tuple[FakeControl, Path]
) -> None:
    control, kept = left
    theirs, before = kept.with_name("theirs"), kept.read_bytes()
    theirs.write_bytes(before)
    kept.with_name(name).unlink(missing_ok=True)
    kept.with_name(name).symlink_to(theirs)
    put_back(kept)
    assert control.running.max_batch_size == 8
    assert theirs.read_bytes() == before


def test_stored_config_of_a_server_restores_numbers_and_no_code(
    left: tuple[FakeControl, Path],
) -> None:
    control, kept = left
    forged = parse('max_batch_size: 9 backend: "sh" default_model_filename: "/evil"')
    forged.parameters["EXECUTION_ENV_PATH"].string_value = "/evil"
    kept.write_text(json.dumps({"m": to_load_json(forged)}))
    put_back(kept)
    assert control.running.max_batch_size == 9
    assert [*control.running.parameters] == ["k"]
    assert (control.running.backend, control.running.default_model_filename) == ("", "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"m": 1}', '{"m": "x"}', "[" * 9999])
def test_unreadable_stored_config_of_a_server_is_an_error_and_changes_nothing(
    left: tuple[FakeControl, Path], text: str
) -> None:
    control, kept = left
    kept.write_text(text)
    with pytest.raises(EnvironmentNotReadyError, match=f"cannot read {kept}, the configs"):
        put_back(kept)
    assert control.running.max_batch_size == 4
    assert kept.read_text() == text


def test_docker_takes_its_engine_from_the_environment() -> None:
    given = spec({"mode": "docker", "image": "triton:1", "gpus": [0], "args": ["--log-verbose=1"]})
    with server_launcher(given, {"m": FILE}, {"DOCKER_HOST": "unix:///s"}) as launcher:
        assert isinstance(launcher, DockerLauncher)
        assert launcher.image == "triton:1"
        assert launcher.gpus == (0,)
        assert launcher.args == ("--log-verbose=1",)
        assert launcher.engine_environment["DOCKER_HOST"] == "unix:///s"
        assert launcher.restartable


def test_missing_field_of_a_server_mode_is_refused() -> None:
    server: dict[str, Any] = {"mode": "docker"}
    with pytest.raises(SpecError, match="missing"):
        with server_launcher(spec(server), {"m": FILE}, {}):
            pass
