"""Whether a server is alive and ready, checked over plain HTTP (no client library needed)."""

from __future__ import annotations

import time

from tuner.errors import ServerGoneError
from tuner.server import log
from tuner.server.log import remedy
from tuner.server.server import Endpoints, Server
from tuner.server.transport import get

_POLL_S = 0.01
_ASK_TIMEOUT_S = 5.0
_LOG_LINES = 1000  # a refused option is followed by 400 lines of usage


def live(endpoints: Endpoints) -> bool:
    """Whether the server answers at all."""
    return _answers(endpoints, "http", "/v2/health/live")


def ready(endpoints: Endpoints) -> bool:
    """Whether it accepts requests; by default also false while any model is not ready."""
    return _answers(endpoints, "http", "/v2/health/ready")


def wait_until_ready(server: Server, timeout_s: float) -> None:
    """Returns once the server takes requests and serves its metrics.

    Metrics are the last to come: a server whose metrics port is taken is ready for a moment
    and then ends.

    Raises:
        ServerGoneError: It ended first, or the time is over; with its own reason.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        # Checked first: somebody else's server may answer, on a port that ours did not get.
        answers = ready(server.endpoints) and _serves_metrics(server.endpoints)
        if not server.alive():
            reason = log.failure(server.log_tail(_LOG_LINES)) or "it left no message"
            raise ServerGoneError(
                f"tritonserver ended while starting: {reason}",
                remedy(reason) or "check the server's arguments",
            )
        if answers:
            return
        if time.monotonic() > deadline:
            raise ServerGoneError(
                f"tritonserver was not ready within {timeout_s:g} s: "
                f"{log.failure(server.log_tail(_LOG_LINES))}"
            )
        time.sleep(_POLL_S)


def _serves_metrics(endpoints: Endpoints) -> bool:
    return endpoints.metrics is None or _answers(endpoints, "metrics", "/metrics")


def _answers(endpoints: Endpoints, service: str, path: str) -> bool:
    try:
        get(endpoints, service, path, _ASK_TIMEOUT_S)
    except OSError:
        return False
    return True
