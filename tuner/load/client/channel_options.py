"""What every client of ours needs to send requests to Triton over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc  # type: ignore[import-untyped]

from tuner.machine.ports import LOOPBACK

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


@contextmanager
def asking(address: str, connect_s: float = 0.0) -> Iterator[Any]:
    """Sends one request, as gRPC's callables do: without serialisers bytes go and come.

    ``connect_s``: how long to wait for the connection first, so that this time is not counted as
    the model's. A failure to connect shows with the first request.
    """
    with grpc.insecure_channel(address, options=channel_options(address)) as channel:
        if connect_s:
            with suppress(grpc.FutureTimeoutError):
                grpc.channel_ready_future(channel).result(timeout=connect_s)
        yield channel.unary_unary(INFER)


def is_refusal(words: str) -> bool:
    """Whether an error of the server says that a queue policy refused the request."""
    return any(refusal in words for refusal in _REFUSALS)
