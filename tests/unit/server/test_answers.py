"""What a server answers over HTTP has a deadline and a size, however it is sent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from itertools import count, repeat

import pytest

from tuner.errors import EnvironmentNotReadyError, ServerGoneError
from tuner.server.control import Control
from tuner.server.server import Endpoints, get
from tuner.triton.remote import check

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDPOINTS = Endpoints("h:1", "g:1", "m:1")


def dripping(*parts: bytes) -> Iterator[bytes]:
    """A byte at a time, each in time by itself."""
    for byte in b"".join(parts):
        time.sleep(0.02)
        yield bytes([byte])


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Iterator[bytes]], None]]:
    """Makes the other end of every connection answer with these bytes."""
    senders = []

    def answer(parts: Iterator[bytes]) -> None:
        ours, theirs = socket.socketpair()

        def send() -> None:
            with theirs, suppress(OSError):
                theirs.recv(1 << 16)  # the request
                for part in parts:
                    theirs.sendall(part)

        def connect(connection: HTTPConnection) -> None:
            connection.sock = ours
            ours.settimeout(connection.timeout)

        monkeypatch.setattr(HTTPConnection, "connect", connect)
        senders.append(threading.Thread(target=send))
        senders[-1].start()

    yield answer
    for sender in senders:
        sender.join()


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < limit_s


def test_complete_response_is_returned(answering: Callable[[Iterator[bytes]], None]) -> None:
    answering(iter([OK, b"Content-Length: 9\r\n\r\n", b"nv_x ", b"1.5\n"]))
    assert get(ENDPOINTS, "metrics", "/metrics", 5.0) == b"nv_x 1.5\n"
    answering(iter([CHUNKED, b"5\r\nnv_x \r\n4\r\n1.5\n\r\n0\r\n\r\n"]))
    assert get(ENDPOINTS, "metrics", "/metrics", 5.0) == b"nv_x 1.5\n"


@pytest.mark.parametrize("body", [b"", b"nv_x 12"])
def test_half_an_answer_is_none(answering: Callable[[Iterator[bytes]], None], body: bytes) -> None:
    """A number that is cut off would be another one."""
    answering(iter([OK, b"Content-Length: 50\r\n\r\n", body]))
    with pytest.raises(OSError, match=f"ends after {len(body)} of 50 bytes"):
        get(ENDPOINTS, "metrics", "/metrics", 5.0)
    answering(iter([CHUNKED, b"50\r\n", body]))
    with pytest.raises(OSError, match="not an HTTP response"):
        get(ENDPOINTS, "metrics", "/metrics", 5.0)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(lambda: dripping(OK, b"Content-Length: 999\r\n\r\n", b"x" * 999), id="body"),
        pytest.param(lambda: dripping(OK, b"A: b\r\n" * 99), id="headers"),
        pytest.param(lambda: dripping(b"HTTP/1.1 100 Continue\r\n\r\n" * 99), id="slow 100"),
        pytest.param(lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 99), id="100"),
        pytest.param(lambda: (CHUNKED if n == 0 else b"x" for n in count()), id="chunk's length"),
        pytest.param(lambda: (CHUNKED + b"0\r\n" if n == 0 else b"A: b\r\n" for n in count()),
                     id="trailers"),
        pytest.param(lambda: (CHUNKED if n == 0 else b"8\r\n########\r\n" for n in count()),
                     id="chunks"),
        pytest.param(lambda: (OK + b"\r\n" if n == 0 else b"x" * 4096 for n in count()), id="long"),
        pytest.param(lambda: iter([CHUNKED, b"-5\r\nhello\r\n"]), id="negative"),
        pytest.param(lambda: iter([b"SSH-2.0-" + b"x" * 60_000 + b"\r\n"]), id="no HTTP"),
    ],
)  # fmt: skip
def test_an_answer_without_an_end_is_given_up_in_time(
    answering: Callable[[Iterator[bytes]], None], parts: Callable[[], Iterator[bytes]]
) -> None:
    answering(parts())
    with within(10.0), pytest.raises(OSError) as error:
        get(ENDPOINTS, "metrics", "/metrics", 0.5)
    assert len(str(error.value)) < 2100


def test_an_error_does_not_repeat_megabytes_of_a_server(
    answering: Callable[[Iterator[bytes]], None],
) -> None:
    text = b"a " + b"x" * 5_000_000 + b"\n"
    answering(iter([OK, b"Content-Length: %d\r\n\r\n" % len(text), text]))
    with Control(ENDPOINTS) as control, pytest.raises(ServerGoneError, match="metrics: ") as error:
        control.metrics()
    assert len(error.value.message) < 2100
    answering(iter([b"x" * 60_000 + b"\r\n"]))
    with pytest.raises(EnvironmentNotReadyError, match="no server answers") as unready:
        check(ENDPOINTS)
    assert len(unready.value.message) < 2300
