from __future__ import annotations

import json
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from tritonclient.grpc import service_pb2

from tuner.errors import LoadFailedError
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
    header = json.loads(body[: int(fields["Inference-Header-Content-Length"])])
    assert header["inputs"][0]["shape"] == [1, 2]
    assert header["inputs"][0]["parameters"] == {"binary_data_size": 4}
    assert body[int(fields["Inference-Header-Content-Length"]) :] == b"\1\0\2\0"


def json_request(datatype: str, raw: bytes) -> bytes:
    form = RequestForm("m", {"x": datatype}, batched=True, batch_size=1, priority=2)
    (request,) = build([{"x": Content((2,), raw)}], form, 1, Protocol.HTTP_JSON, ["Host: h:1"])
    return request


@pytest.mark.parametrize(
    ("datatype", "raw", "data"),
    [
        ("INT16", b"\1\0\2\0", [1, 2]),
        ("BOOL", b"\1\0", [True, False]),
        ("FP32", b"\0\0\x80?\0\0\0\xc0", [1.0, -2.0]),
        ("BYTES", b"\2\0\0\0ab\2\0\0\0\xc3\xa4", ["ab", "\u00e4"]),
    ],
)
def test_a_request_in_json_carries_its_tensors_as_values(
    datatype: str, raw: bytes, data: list[Any]
) -> None:
    head, _, body = json_request(datatype, raw).partition(b"\r\n\r\n")
    fields = dict(line.split(": ") for line in head.decode().split("\r\n")[1:])
    assert fields["Content-Type"] == "application/json"
    assert int(fields["Content-Length"]) == len(body)
    sent = {"name": "x", "shape": [1, 2], "datatype": datatype, "data": data}
    assert json.loads(body) == {"inputs": [sent], "parameters": {"priority": 2}}


@pytest.mark.parametrize(
    ("datatype", "raw"),
    [("FP32", b"\0\0\xc0\x7f\0\0\0\0"), ("BYTES", b"\1\0\0\0\xff\1\0\0\0a")],
)
def test_values_that_json_does_not_have_are_refused(datatype: str, raw: bytes) -> None:
    with pytest.raises(LoadFailedError, match="input x has a value that JSON does not have") as e:
        json_request(datatype, raw)
    assert e.value.hint == "write workload.protocol: http"


@pytest.mark.parametrize(("version", "path"), [(0, "/v2/models/m/infer"), (3, "/versions/3/infer")])
def test_requests_ask_for_their_version_of_the_model(version: int, path: str) -> None:
    form = RequestForm("m", {"x": "INT16"}, batched=True, batch_size=1, version=version)
    inputs = [{"x": Content((2,), b"\1\0\2\0")}]
    for protocol in (Protocol.HTTP, Protocol.HTTP_JSON):
        (request,) = build(inputs, form, 1, protocol, ["Host: h:1"])
        assert request.partition(b" HTTP/1.1")[0].decode().endswith(path)
    (request,) = build(inputs, form, 1)
    message = service_pb2.ModelInferRequest.FromString(request)
    assert message.model_version == ("3" if version else "")
