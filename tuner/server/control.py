"""Model control, statistics and metrics of a running server, with a deadline on every request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from tuner.errors import DeployRefusedError, EnvironmentNotReadyError, ServerGoneError
from tuner.hiding import without_passwords
from tuner.machine.ports import LOOPBACK
from tuner.server.server import Endpoints
from tuner.server.statistics import Metrics, StatisticsSnapshot
from tuner.server.transport import credentials, get, key_headers

_POLL_S = 0.01
_GONE = ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED", "StatusCode.DEADLINE_EXCEEDED")
_REFUSED = ("StatusCode.UNAUTHENTICATED", "StatusCode.PERMISSION_DENIED")
_NOT_EXPLICIT = "explicit model load / unload is not allowed"
_RESTRICTED = "This protocol is restricted"
_NO_SUCH_MODEL = "tune-asks-whether-models-may-be-unloaded"


class ModelState(Enum):
    """A model's state in the repository index, of its best version."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"
    NEVER_LOADED = ""

    @classmethod
    def _missing_(cls, value: object) -> ModelState:
        """A state of another release's is neither ready nor gone."""
        return cls.LOADING


class Control:
    """Talks to one server over gRPC; use it as a context manager.

    Every method raises `ServerGoneError` when the server does not answer in time.

    Args:
        timeout_s: For every request but loading and unloading.
    """

    def __init__(self, endpoints: Endpoints, timeout_s: float = 10.0) -> None:
        import tritonclient.grpc as client

        # gRPC would send even 127.0.0.1 through a proxy named in the environment.
        local = endpoints.grpc.startswith(LOOPBACK)
        channel_args = [("grpc.enable_http_proxy", 0)] if local else None
        tls = credentials(endpoints.tls_of("grpc"))
        self._client: Any = client.InferenceServerClient(
            endpoints.grpc, creds=tls, channel_args=channel_args
        )
        self._endpoints = endpoints
        self._headers = {**endpoints.headers, **key_headers(endpoints.key)}
        self._timeout_s = timeout_s
        self._asked = {"headers": self._headers, "client_timeout": timeout_s}

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def load(self, model: str, config_json: str | None, deadline_s: float) -> None:
        """Loads a model, with a config that replaces its file's when one is given.

        Without one, a loaded model whose files are unchanged stays as it is, even when it was
        loaded with another config.

        Raises:
            DeployRefusedError: The config or the model was refused; what ran before still runs.
            EnvironmentNotReadyError: The server is not in explicit model control.
            ServerGoneError: Not loaded by the deadline (a Python stub that cannot start hangs
                for ever), or the server died.
        """
        with _translated(f"loading {model}", deadline_s):
            self._client.load_model(
                model, headers=self._headers, config=config_json, client_timeout=deadline_s
            )

    def unload(self, model: str, deadline_s: float) -> None:
        """Unloads a model and returns once it and its memory are really gone."""
        deadline = time.monotonic() + deadline_s
        with _translated(f"unloading {model}", deadline_s):
            self._unload(model, deadline_s)
        while self.state(model) not in (ModelState.UNAVAILABLE, ModelState.NEVER_LOADED):
            if time.monotonic() > deadline:
                raise ServerGoneError(f"{model} was not unloaded within {deadline_s:g} s")
            time.sleep(_POLL_S)

    def check_explicit(self) -> None:
        """Returns if models may be loaded and unloaded; changes nothing.

        Raises:
            EnvironmentNotReadyError: The server runs in none or poll mode.
        """
        # Unloading what is not there succeeds in explicit mode and is refused in the others.
        with _translated("asking for explicit model control", self._timeout_s):
            self._unload(_NO_SUCH_MODEL, self._timeout_s)

    def _unload(self, model: str, deadline_s: float) -> None:
        self._client.unload_model(model, headers=self._headers, client_timeout=deadline_s)

    def ready(self, model: str) -> bool:
        """Whether the model takes requests."""
        with _translated(f"asking whether {model} is ready", self._timeout_s):
            return bool(self._client.is_model_ready(model, **self._asked))

    def state(self, model: str) -> ModelState:
        """The model's state; of several versions, the one closest to ready counts."""
        with _translated("reading the repository index", self._timeout_s):
            index = self._client.get_model_repository_index(**self._asked)
        states = {ModelState(entry.state) for entry in index.models if entry.name == model}
        return next((state for state in ModelState if state in states), ModelState.NEVER_LOADED)

    def running_config(self, model: str) -> Any:
        """The ``ModelConfig`` message the server runs, completed by its backend."""
        with _translated(f"reading the config of {model}", self._timeout_s):
            response = self._client.get_model_config(model, **self._asked)
        return response.config

    def statistics(self, model: str) -> StatisticsSnapshot:
        """The model's counters now."""
        with _translated(f"reading the statistics of {model}", self._timeout_s):
            response = self._client.get_inference_statistics(model, **self._asked)
        return StatisticsSnapshot.from_response(response)

    def version(self) -> str:
        """The server's."""
        with _translated("reading the server's metadata", self._timeout_s):
            response = self._client.get_server_metadata(**self._asked)
        return str(response.version)

    def metrics(self) -> Metrics | None:
        """The metrics endpoint's values now; None when the server has none."""
        if self._endpoints.metrics is None:
            return None
        try:
            told = get(self._endpoints, "metrics", "/metrics", self._timeout_s)
        except OSError as error:
            raise ServerGoneError(f"reading the metrics: {error}") from error
        return Metrics.parse(told.decode(errors="replace"))


@contextmanager
def _translated(doing: str, deadline_s: float) -> Iterator[None]:
    """Turns the client library's one exception into ours, by its gRPC status."""
    from tritonclient.utils import InferenceServerException

    try:
        yield
    except InferenceServerException as error:
        message, status = without_passwords(str(error.message())), str(error.status())
        if _NOT_EXPLICIT in message:
            raise EnvironmentNotReadyError(
                "the server does not allow models to be loaded: its model control mode is none or "
                "poll",
                "start it with --model-control-mode=explicit",
            ) from error
        if _RESTRICTED in message or status in _REFUSED:
            raise EnvironmentNotReadyError(
                f"{doing}: the server asks for a key that tune does not send ({message})",
                "name it in server.headers_from_env: NAME, or triton-grpc-protocol-NAME over gRPC",
            ) from error
        if status == "StatusCode.DEADLINE_EXCEEDED":
            raise ServerGoneError(f"{doing}: no answer within {deadline_s:g} s") from error
        if status in _GONE:
            raise ServerGoneError(f"{doing}: the server is gone ({message})") from error
        raise DeployRefusedError(message) from error
