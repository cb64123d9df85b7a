"""A server that somebody else runs: used as it is and left as it was found."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tuner.errors import EnvironmentNotReadyError, ServerGoneError, TunerError
from tuner.modelconfig.message import to_load_json
from tuner.server import health
from tuner.server.control import Control, ModelState
from tuner.server.server import Endpoints, Place

_logger = logging.getLogger(__name__)


def check(endpoints: Endpoints) -> None:
    """Returns if the server can be tuned; changes nothing.

    Raises:
        EnvironmentNotReadyError: Nothing answers, or models cannot be loaded on request.
    """
    if not health.live(endpoints):
        raise EnvironmentNotReadyError(
            f"no server answers at http://{endpoints.http}/v2/health/live",
            "check server.http in the spec, and that the server runs",
        )
    try:
        with Control(endpoints) as control:
            control.check_explicit()
    except ServerGoneError as error:
        raise EnvironmentNotReadyError(
            f"no server answers over gRPC at {endpoints.grpc}: {error.message}",
            "check server.grpc in the spec",
        ) from error


@dataclass(frozen=True)
class RemoteServer:
    """A server reached over the network; see `tuner.server.server.Server`."""

    endpoints: Endpoints

    def alive(self) -> bool:
        return health.live(self.endpoints)

    def log_tail(self, lines: int = 40) -> str:
        """Empty: a remote log cannot be read."""
        return ""


@dataclass(frozen=True)
class RemoteLauncher:
    """Starts nothing; see `tuner.server.server.ServerLauncher`.

    The models of the run are put back when the context is left: loaded with the config they ran
    with before, else unloaded. (Loading them without a config would change nothing: Triton sees
    the same files as before.) When tune is killed with SIGKILL the last configs tried stay.
    """

    endpoints: Endpoints
    models: tuple[str, ...]
    load_timeout_s: float = 120.0
    restartable: ClassVar[bool] = False
    place: ClassVar[Place] = Place.ELSEWHERE
    python: ClassVar[None] = None

    def shown(self) -> tuple[str, ...]:
        return ()

    def version(self) -> str:
        """The version that the server reports; its image, backends and machine are not known."""
        check(self.endpoints)
        with Control(self.endpoints) as control:
            return f"{control.version()}, remote: its image and machine are unknown"

    @contextmanager
    def launch(self, server_args: Sequence[str], log: Path) -> Iterator[RemoteServer]:
        if server_args:
            raise EnvironmentNotReadyError(
                f"a remote server cannot be given {' '.join(server_args)}",
                "take response_cache.size out of the space, or use the local or docker mode",
            )
        check(self.endpoints)
        with Control(self.endpoints) as control:
            loaded = [m for m in self.models if control.state(m) is ModelState.READY]
            before = {model: to_load_json(control.running_config(model)) for model in loaded}
        try:
            yield RemoteServer(self.endpoints)
        finally:
            for model in reversed(self.models):
                if model not in before:
                    self._put_back(model, None)
            for model, config in before.items():
                self._put_back(model, config)

    def _put_back(self, model: str, config_json: str | None) -> None:
        try:
            with Control(self.endpoints) as control:
                if config_json is not None:
                    control.load(model, config_json, self.load_timeout_s)
                else:
                    control.unload(model, self.load_timeout_s)
        except TunerError as error:
            _logger.warning(
                "%s on %s could not be put back as it was: %s",
                *(model, self.endpoints.grpc, error.message),
            )
