"""What every client of ours needs to send requests to Triton over gRPC."""

from __future__ import annotations

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


def is_refusal(words: str) -> bool:
    """Whether an error of the server says that a queue policy refused the request."""
    return any(refusal in words for refusal in _REFUSALS)
