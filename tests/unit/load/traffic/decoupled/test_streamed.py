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
    told = service_pb2.ModelStreamInferResponse(error_message=error)
    told.infer_response.id = number
    told.infer_response.parameters["triton_final_response"].bool_param = True
    told.infer_response.outputs.add(name="y")
    return bytes(told.SerializeToString())


class Stream:
    """What comes through a stream; an exception is raised in its place."""

    def __init__(self, *told: bytes | Exception) -> None:
        self._told = told

    def stream_stream(self, _: str) -> Any:
        return lambda *_, **__: self

    def __iter__(self) -> Iterator[bytes]:
        for one in self._told:
            if isinstance(one, Exception):
                raise one
            yield one

    def cancel(self) -> None:
        self._told = ()


def ended(*told: bytes | Exception) -> StreamedCall:
    call = StreamedCall(Stream(*told), b"", 60.0, ())
    call.exception(timeout=2.0)  # raises where the thread has ended without a word
    return call


def test_a_final_response_ends_it() -> None:
    assert ended(message()).result() == message()


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (b"\xff\xff", "the response cannot be read"),
        (message("9" * 5000), "under an id that nobody asked with"),
        (message("another"), "under an id that nobody asked with"),
        (message("", error="no such model"), "no such model"),
        (message(error="out of paper"), "out of paper"),
        (RuntimeError("what nobody thought of"), "what nobody thought of"),
    ],
)
def test_what_cannot_be_read_ends_it_with_an_error(told: bytes | Exception, words: str) -> None:
    call = ended(told)
    assert call.code() is grpc.StatusCode.UNKNOWN
    assert words in call.details()
    reply = reply_to(call, "asking")
    assert (reply.answer, reply.refused) == (None, False)
    assert words in reply.words
