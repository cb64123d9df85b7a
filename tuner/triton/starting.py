"""What starting a server has in common, whoever runs it: owned arguments, ports that get taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

from tuner.errors import ServerGoneError, SpecError
from tuner.triton import health
from tuner.triton.server import Server

SERVICES = ("http", "grpc", "metrics")
_PORT_ATTEMPTS = 3

#: Set here, and so not free to the spec or a candidate.
OWNED_ARGS = (
    "--model-repository",
    "--model-store",
    "--model-control-mode",
    *(f"--{service}-{what}" for service in SERVICES for what in ("address", "port")),
    *(f"--allow-{service}" for service in SERVICES),
)

AnyServer = TypeVar("AnyServer", bound=Server)


def refuse_owned(arguments: Iterable[str]) -> None:
    """Raises SpecError when one of ``arguments`` is among `OWNED_ARGS`."""
    for argument in arguments:
        if argument.partition("=")[0] in OWNED_ARGS:
            raise SpecError(
                f"tritonserver argument {argument}: this one is set by tune",
                "remove it from server.args",
            )


def ready_server(
    stack: ExitStack, start: Callable[[], AbstractContextManager[AnyServer]], timeout_s: float
) -> AnyServer:
    """A ready server, owned by ``stack``; started again when somebody took one of its ports.

    Raises:
        ServerGoneError: It died, or was not ready in time.
    """
    for attempts_left in reversed(range(_PORT_ATTEMPTS)):
        with ExitStack() as attempt:
            server = attempt.enter_context(start())
            try:
                health.wait_until_ready(server, timeout_s)
            except ServerGoneError as error:
                if attempts_left and "already in use" in error.message:
                    continue
                raise
            stack.enter_context(attempt.pop_all())
            return server
    raise AssertionError("the last attempt returns or raises")
