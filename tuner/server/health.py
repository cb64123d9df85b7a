"""Checks over HTTP, without a client library, whether a server is alive and ready.

`ready_server` starts a server on this machine in every mode: with a key, and again if one of its
ports was taken.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from tuner.errors import ServerGoneError
from tuner.machine.process import ADDRESS
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.server.control import Control
from tuner.server.log import PORT_TAKEN, failure, meaning, remedy
from tuner.server.server import FLAGS, Endpoints, Server, get, new_key
from tuner.server.shared_memory import SharedRegion

SERVICES = ("http", "grpc", "metrics")
_POLL_S = 0.01
_ASK_TIMEOUT_S = 5.0
_LOG_LINES = 1000  # a refused option is followed by 400 lines of usage
_ATTEMPTS = 4
_OPEN = (
    "this tritonserver is too old to restrict its control: other users of this machine could load "
    "models into it"
)
_logger = logging.getLogger(__name__)

AnyServer = TypeVar("AnyServer", bound=Server)


def live(endpoints: Endpoints) -> bool:
    return _answers(endpoints, "http", "/v2/health/live")


def ready(endpoints: Endpoints) -> bool:
    """Whether the server accepts requests; by default, false while any model is not ready."""
    return _answers(endpoints, "http", "/v2/health/ready")


def wait_until_ready(server: Server, timeout_s: float) -> None:
    """Waits until the server accepts requests and serves its metrics.

    The metrics endpoint starts last: a server whose metrics port is taken is ready for a moment,
    and then exits.

    Raises:
        ServerGoneError: The server exited, or the timeout is over; with the server's message.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        # `alive` is checked after the answer: another server may answer on a port that was taken.
        endpoints = server.endpoints
        answers = ready(endpoints) and (
            endpoints.metrics is None or _answers(endpoints, "metrics", "/metrics")
        )
        if not server.alive():
            words = failure(server.log_tail(_LOG_LINES))
            raise failed(
                ServerGoneError,
                Reason(ReasonKind.ENDED_WHILE_STARTING, facts={"words": words}),
                remedy(words) or "check the server's arguments",
            )
        if answers:
            return
        if time.monotonic() > deadline:
            facts: dict[str, Fact] = {
                "timeout_s": timeout_s,
                "words": failure(server.log_tail(_LOG_LINES)),
            }
            raise failed(ServerGoneError, Reason(ReasonKind.NOT_READY, facts=facts))
        time.sleep(_POLL_S)


def _answers(endpoints: Endpoints, service: str, path: str) -> bool:
    try:
        get(endpoints, service, path, _ASK_TIMEOUT_S)
    except OSError:
        return False
    return True


def endpoints_at(
    ports: Sequence[int], key: str | None, shared: SharedRegion | None = None
) -> Endpoints:
    """Endpoints of a server on this machine; ``ports``: in the order of `SERVICES`."""
    http, grpc, metrics = (f"{ADDRESS}:{port}" for port in ports)
    return Endpoints(http, grpc, metrics, key, shared=shared)


@contextmanager
def ready_server(
    start: Callable[[str | None], AbstractContextManager[AnyServer]], timeout_s: float
) -> Iterator[AnyServer]:
    """Starts a server and waits until it is ready; starts again if one of its ports was taken.

    Its control needs a key (`tuner.server.server`), unless the server is too old for that.

    Args:
        start: Starts a server with the given key, or without a key.
        timeout_s: Timeout until it is ready, in seconds.

    Raises:
        ServerGoneError: The server died, or was not ready in time.
        EnvironmentNotReadyError: The server refuses tensors in shared memory.
    """
    key: str | None = new_key()
    for attempts_left in reversed(range(_ATTEMPTS)):
        with start(key) as server:
            try:
                wait_until_ready(server, timeout_s)
            except ServerGoneError as error:
                words = "\n".join(error.reason.quotes())
                if key is not None and any(flag in words for flag in FLAGS):
                    _logger.warning("%s", _OPEN)
                    key = None
                elif not attempts_left or meaning(words) != PORT_TAKEN:
                    raise
            else:
                if (shared := server.endpoints.shared) is not None:
                    with Control(server.endpoints) as control:
                        control.share(shared)
                    shared.hide()
                yield server
                return
