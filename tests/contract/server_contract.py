"""What every way of running a tritonserver must do; subclassed once for each launcher."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from builders.triton_repository import CONFIG

from tuner.errors import EnvironmentNotReadyError, ServerGoneError
from tuner.modelconfig.message import parse, to_load_json
from tuner.server.control import Control, ModelState
from tuner.server.server import Endpoints, Server, ServerLauncher

#: The model's config with one change.
SMALLER = to_load_json(parse(CONFIG.replace("max_batch_size: 8", "max_batch_size: 4")))


@dataclass(frozen=True)
class ServerCase:
    """One launcher over the repository of ``integration.triton.repository``.

    Attributes:
        kill: Kills the server from outside, without a warning.
        left: What is still there of a server that was launched (empty after its context).
    """

    launcher: ServerLauncher
    model: str
    kill: Callable[[Server], None]
    left: Callable[[Server], list[str]]


def answer(endpoints: Endpoints, model: str, values: list[float]) -> list[float]:
    """Sends one request and returns the output."""
    with grpc_client.InferenceServerClient(endpoints.grpc) as client:
        given = grpc_client.InferInput("x", [1, len(values)], "FP32")
        given.set_data_from_numpy(np.array([values], dtype=np.float32))
        result = client.infer(model, [given], client_timeout=10)
        output = result.as_numpy("y")
        assert output is not None
        return [float(value) for value in output[0]]


def eventually(true: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """A server counts a request after it has answered it, and a process takes time to die."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def posted(endpoints: Endpoints, path: str) -> int:
    """The HTTP status of an empty request to ``/v2/PATH``."""
    with closing(HTTPConnection(endpoints.http, timeout=10)) as connection:
        connection.request("POST", f"/v2/{path}", "{}")
        return connection.getresponse().status


def successes(control: Control, model: str) -> list[float]:
    metrics = control.metrics()
    assert metrics is not None
    return metrics.values("nv_inference_request_success", model=model)


class ServerContract:
    """Subclasses give a ``case`` fixture."""

    @pytest.fixture
    def case(self) -> ServerCase:
        raise NotImplementedError

    def test_serves_a_model_with_the_requested_config_and_leaves_nothing(
        self, case: ServerCase, tmp_path: Path
    ) -> None:
        assert re.match(r"2\.\d+\.\d+|unknown version, image \S+", case.launcher.version())
        with case.launcher.launch([], tmp_path / "server.log") as server:
            assert server.alive()
            with Control(server.endpoints) as control:
                assert control.state(case.model) is not ModelState.READY
                control.load(case.model, SMALLER, deadline_s=30)
                assert control.running_config(case.model).max_batch_size == 4
                assert answer(server.endpoints, case.model, [1, 2, 3, 4]) == [2, 4, 6, 8]
                eventually(lambda: control.statistics(case.model).success_count == 1)
                eventually(lambda: successes(control, case.model) == [1.0])
                assert control.version().startswith("2.")
        assert case.left(server) == []

    def test_who_lacks_the_key_can_ask_and_infer_but_not_load_or_share_memory(
        self, case: ServerCase, tmp_path: Path
    ) -> None:
        with case.launcher.launch([], tmp_path / "server.log") as server:
            stranger = replace(server.endpoints, key=None)
            with Control(stranger) as control:
                with pytest.raises(EnvironmentNotReadyError, match="key"):
                    control.load(case.model, SMALLER, deadline_s=30)
            for path in (
                f"repository/models/{case.model}/load",
                "repository/index",
                "systemsharedmemory/region/any/register",
                "cudasharedmemory/region/any/register",
            ):
                assert posted(stranger, path) == HTTPStatus.FORBIDDEN, path
            with Control(server.endpoints) as control:
                assert control.state(case.model) is not ModelState.READY
                control.load(case.model, SMALLER, deadline_s=30)
            assert answer(stranger, case.model, [1, 2, 3, 4]) == [2, 4, 6, 8]

    def test_a_refused_argument_is_an_error_with_a_reason(
        self, case: ServerCase, tmp_path: Path
    ) -> None:
        with pytest.raises((ServerGoneError, EnvironmentNotReadyError), match="no-such-option"):
            with case.launcher.launch(["--no-such-option=1"], tmp_path / "server.log"):
                pass

    def test_a_killed_server_is_noticed(self, case: ServerCase, tmp_path: Path) -> None:
        with case.launcher.launch([], tmp_path / "server.log") as server:
            with Control(server.endpoints, timeout_s=5) as control:
                assert control.version()
                case.kill(server)
                eventually(lambda: not server.alive())
                with pytest.raises(ServerGoneError):
                    control.statistics(case.model)
        assert case.left(server) == []

    def test_a_server_can_be_launched_again_after_an_error_inside(
        self, case: ServerCase, tmp_path: Path
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            with case.launcher.launch([], tmp_path / "server.log") as first:
                raise KeyboardInterrupt
        assert case.left(first) == []
        with case.launcher.launch([], tmp_path / "server.log") as second:
            assert second.alive()
