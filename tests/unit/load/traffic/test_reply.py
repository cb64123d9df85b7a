"""Answers of servers that are not what a client expects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tuner.load.probes.answers import Answer, _answer
from tuner.load.traffic.reply import UnreadableAnswerError, outputs_in
from tuner.load.traffic.sequences.pace import counted_in


def answer(datatype: str, shape: list[int], raw: bytes | None) -> bytes:
    response = service_pb2.ModelInferResponse(model_name="m")
    response.outputs.add(name="y", datatype=datatype, shape=shape)
    if raw is not None:
        response.raw_output_contents.append(raw)
    return bytes(response.SerializeToString())


ODD = {
    "no protobuf": b"\xff\xff\xff",
    "half a protobuf": answer("INT32", [1], b"1234")[:-3],
    "another shape": answer("INT32", [3], b"1234"),
    "a negative shape": answer("INT32", [-2, 5], b"1234"),
    "short content": answer("INT64", [1], b"1234"),
    "no content": answer("INT32", [1], None),
    "an unknown type": answer("INT7", [1], b"1234"),
    "a broken text": answer("BYTES", [1], b"\xff\x00\x00\x00a"),
    "half a length of a text": answer("BYTES", [1], b"\x01\x00"),
}


class Answered:
    """A call whose answer has come."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def result(self) -> bytes:
        return self._raw


@pytest.mark.parametrize("kind", ODD)
def test_an_answer_that_cannot_be_read_is_an_answer_with_an_error(kind: str) -> None:
    with pytest.raises(UnreadableAnswerError):
        outputs_in(ODD[kind])
    reply = _answer(Answered(ODD[kind]))
    assert reply.error.startswith("the answer cannot be read: ")
    assert "\n" not in reply.error
    assert counted_in(ODD[kind], "y") is None


def test_readable_outputs_are_read_with_their_values() -> None:
    raw = answer("INT32", [1, 2], np.array([7, 8], "<i4").tobytes())
    assert outputs_in(raw)["y"].tolist() == [[7, 8]]
    assert counted_in(answer("INT32", [1], np.array([7], "<i4").tobytes()), "y") == 7.0
    assert counted_in(answer("BYTES", [1], b"\x01\x00\x00\x00a"), "y") is None


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer(raw: bytes) -> None:
    assert isinstance(_answer(Answered(raw)), Answer)
