from __future__ import annotations

import json
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from tuner.load.client.calls import Connection, GrpcCalls
from tuner.load.client.job import Outcome
from tuner.load.traffic.encoding import build
from tuner.load.traffic.wire import Content, RequestForm
from tuner.spec.workload import Protocol

Ends = list[tuple[Outcome, str]]


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


def open_connection() -> tuple[Connection, Wire, Ends, list[Connection]]:
    ends: Ends = []
    idle: list[Connection] = []
    connection, wire = Connection(idle.append, idle.append), Wire()
    connection.connection_made(wire)
    connection.ask(b"request", lambda *end: ends.append(end))
    return connection, wire, ends, idle


def test_an_answer_in_pieces_is_one_answer_and_frees_the_connection() -> None:
    connection, wire, ends, idle = open_connection()
    for byte in answer(200, b"tensors"):
        assert ends == []
        connection.data_received(bytes([byte]))
    assert wire.written == b"request"
    assert ends == [(Outcome.ANSWERED, "")]
    assert idle == [connection]


@pytest.mark.parametrize(
    ("status", "words", "outcome"),
    [
        (503, "[request id: <id_unknown>] Exceeds maximum queue size", Outcome.QUEUE_FULL),
        (503, "[request id: <id_unknown>] Request timeout expired", Outcome.TIMED_OUT),
        (500, "negative input", Outcome.FAILED),
    ],
)
def test_an_error_over_http_has_the_servers_words(
    status: int, words: str, outcome: Outcome
) -> None:
    connection, _, ends, _ = open_connection()
    connection.data_received(answer(status, json.dumps({"error": words}).encode()))
    assert ends == [(outcome, words)]


def test_an_error_without_words_has_its_status() -> None:
    connection, _, ends, _ = open_connection()
    connection.data_received(answer(502, b"<html>"))
    assert ends == [(Outcome.FAILED, "HTTP status 502")]


def test_a_connection_that_ends_takes_its_request_along() -> None:
    connection, _, ends, idle = open_connection()
    connection.connection_lost(None)
    assert [outcome for outcome, _ in ends] == [Outcome.LOST]
    assert idle == [connection]  # told that it is gone


class Ended:
    """A call that has ended, as grpc.aio gives it to a callback."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        self._code, self._words = code, words

    async def code(self) -> grpc.StatusCode:
        return self._code

    async def details(self) -> str:
        return self._words


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        (grpc.StatusCode.OK, "", [(Outcome.ANSWERED, "")]),
        (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size", [Outcome.QUEUE_FULL]),
        (grpc.StatusCode.UNAVAILABLE, "Request timeout expired", [Outcome.TIMED_OUT]),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", [Outcome.LOST]),
        (grpc.StatusCode.INTERNAL, "negative input", [Outcome.FAILED]),
        (grpc.StatusCode.CANCELLED, "Locally cancelled by application!", []),
        (grpc.StatusCode.CANCELLED, "out of paper", [Outcome.FAILED]),
        (grpc.StatusCode.UNAVAILABLE, "out of paper", [Outcome.FAILED]),
        (grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)", [Outcome.LOST]),
    ],
)
def test_how_a_call_over_grpc_ended(code: Any, words: str, expected: list[Any]) -> None:
    ends: Ends = []
    GrpcCalls.ended(set(), lambda *end: ends.append(end), Ended(code, words))
    wanted = [e if isinstance(e, tuple) else (e, words) for e in expected]
    assert ends == wanted


def test_a_request_over_http_carries_its_tensors_in_binary() -> None:
    form = RequestForm("a b", {"x": "INT16"}, batched=True, batch_size=1)
    (request,) = build(
        [{"x": Content((2,), b"\1\0\2\0")}], form, 1, Protocol.HTTP, ["Host: host:8000"]
    )
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v2/models/a%20b/infer HTTP/1.1"
    fields = dict(line.split(": ") for line in lines[1:])
    assert fields["Host"] == "host:8000"
    assert int(fields["Content-Length"]) == len(body)
    told = json.loads(body[: int(fields["Inference-Header-Content-Length"])])
    assert told["inputs"][0]["shape"] == [1, 2]
    assert told["inputs"][0]["parameters"] == {"binary_data_size": 4}
    assert body[int(fields["Inference-Header-Content-Length"]) :] == b"\1\0\2\0"
