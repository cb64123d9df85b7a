"""What starting a server has in common in every mode: a key, ports that get taken."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from tuner.errors import ServerGoneError
from tuner.machine.ports import ADDRESS
from tuner.server import access, health
from tuner.server.server import Endpoints, Server

SERVICES = ("http", "grpc", "metrics")
_ATTEMPTS = 4
_logger = logging.getLogger(__name__)

_OPEN = (
    "this tritonserver is too old to close its control to other users of this machine: "
    "they could make it load models of their own"
)

AnyServer = TypeVar("AnyServer", bound=Server)


def endpoints_at(ports: Sequence[int], key: str | None) -> Endpoints:
    """Those of a server on this machine, from the ports of `SERVICES` and the key it was given."""
    http, grpc, metrics = (f"{ADDRESS}:{port}" for port in ports)
    return Endpoints(http, grpc, metrics, key)


@contextmanager
def ready_server(
    start: Callable[[str | None], AbstractContextManager[AnyServer]], timeout_s: float
) -> Iterator[AnyServer]:
    """A ready server; started again when somebody took one of its ports.

    Its control is closed to others (`tuner.server.access`), unless it is too old for that.

    Args:
        start: Starts one, with the key to its control or without one.

    Raises:
        ServerGoneError: It died, or was not ready in time.
    """
    key: str | None = access.new_key()
    for attempts_left in reversed(range(_ATTEMPTS)):
        with start(key) as server:
            try:
                health.wait_until_ready(server, timeout_s)
            except ServerGoneError as error:
                if key is not None and access.unknown_to(error.message):
                    _logger.warning("%s", _OPEN)
                    key = None
                elif not attempts_left or "already in use" not in error.message:
                    raise
            else:
                yield server
                return
