"""A request to a decoupled model that is asked apart from a load, and what a server may answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from tritonclient.grpc import service_pb2

from tuner.load.client.calls import reply_to
from tuner.load.traffic.decoupled.streamed import StreamedCall


def message(number: str = "0", error: str = "") -> bytes:
    response = service_pb2.ModelStreamInferResponse(error_message=error)
    response.infer_response.id = number
    response.infer_response.parameters["triton_final_response"].bool_param = True
    response.infer_response.outputs.add(name="y")
    return bytes(response.SerializeToString())


class Stream:
    """What comes through a stream; an exception is raised in its place."""

    def __init__(self, *events: bytes | Exception) -> None:
        self._events = events

    def stream_stream(self, _: str) -> Any:
        return lambda *_, **__: self

    def __iter__(self) -> Iterator[bytes]:
        for one in self._events:
            if isinstance(one, Exception):
                raise one
            yield one

    def cancel(self) -> None:
        self._events = ()


def ended(*events: bytes | Exception) -> StreamedCall:
    call = StreamedCall(Stream(*events), b"", 60.0, ())
    call.exception(timeout=2.0)  # raises where the thread has ended without a word
    return call


def test_a_final_response_ends_it() -> None:
    assert ended(message()).result() == message()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (b"\xff\xff", "the response cannot be read"),
        (message("9" * 5000), "under an unknown id"),
        (message("another"), "under an unknown id"),
        (message("", error="no such model"), "no such model"),
        (message(error="out of paper"), "out of paper"),
        (RuntimeError("what nobody thought of"), "what nobody thought of"),
    ],
)
def test_unreadable_response_ends_the_call_with_an_error(
    event: bytes | Exception, words: str
) -> None:
    call = ended(event)
    assert call.code() is grpc.StatusCode.UNKNOWN
    assert words in call.details()
    reply = reply_to(call, "asking")
    assert (reply.answer, reply.refused) == (None, False)
    assert words in reply.words
