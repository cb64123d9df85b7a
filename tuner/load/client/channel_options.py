"""What every client of ours needs to send requests to Triton over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc  # type: ignore[import-untyped]

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.hiding import without_passwords
from tuner.machine.ports import LOOPBACK
from tuner.server.server import Endpoints
from tuner.server.transport import credentials
from tuner.spec.server import Tls

INFER = "/inference.GRPCInferenceService/ModelInfer"

# Triton's words (scheduler_utils.cc) for what a queue policy refuses. The status is UNAVAILABLE,
# which is that of a lost connection too.
_REFUSALS = ("maximum queue size", "timeout expired")


def channel_options(address: str) -> list[tuple[str, int]]:
    """Each request is sent once, however large it is, and to this machine without a proxy."""
    return [
        ("grpc.enable_retries", 0),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_http_proxy", 0 if address.startswith(LOOPBACK) else 1),
    ]


def channel_to(address: str, tls: Tls | None, kind: Any = grpc) -> Any:
    """A channel; ``kind`` is gRPC's module, or that of its asynchronous channels."""
    options = channel_options(address)
    if tls is None:
        return kind.insecure_channel(address, options)
    return kind.secure_channel(address, credentials(tls), options)


@contextmanager
def asking(endpoints: Endpoints, connect_s: float = 0.0) -> Iterator[Any]:
    """Sends one request, as gRPC's callables do: without serialisers bytes go and come.

    ``connect_s``: how long to wait for the connection first, so that this time is not counted as
    the model's. A failure to connect shows with the first request.
    """
    with channel_to(endpoints.grpc, endpoints.tls_of("grpc")) as channel:
        if connect_s:
            with suppress(grpc.FutureTimeoutError):
                grpc.channel_ready_future(channel).result(timeout=connect_s)
        send = partial(channel.unary_unary(INFER).future, metadata=[*endpoints.headers.items()])
        yield SimpleNamespace(future=send)


@dataclass(frozen=True)
class Reply:
    """What came of a request: an answer, or the server's words where a queue or a model refused."""

    answer: bytes | None = None
    words: str = ""
    refused: bool = False


def reply_to(call: Any, during: str, late: str = "") -> Reply:
    """Waits for the reply to a request that was sent by `asking`.

    Raises:
        ServerGoneError: The connection is lost, or the deadline has passed; the message begins
            with ``during``.
        LoadFailedError: The deadline has passed, and that is told as ``late``.
    """
    try:
        return Reply(call.result())
    except grpc.RpcError as error:
        code, words = call.code(), without_passwords(str(call.details()))
        if code is grpc.StatusCode.UNAVAILABLE and is_refusal(words):
            return Reply(words=words, refused=True)
        if late and code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise LoadFailedError(late) from error
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise ServerGoneError(f"{during}: {words}") from error
        return Reply(words=words)


def is_refusal(words: str) -> bool:
    """Whether an error of the server says that a queue policy refused the request."""
    return any(refusal in words for refusal in _REFUSALS)
