"""Sends serialised requests over gRPC or HTTP, and tells what became of each.

A load is sent in callbacks, without a task for each request: on a busy machine this makes requests
far less late. What is asked apart from it goes through `asking`.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from tuner.errors import LoadFailedError, ServerGoneError
from tuner.extras import Deferred
from tuner.hiding import without_passwords
from tuner.load.client.job import Answers, Outcome, is_lost, refusal_in
from tuner.machine.process import LOOPBACK
from tuner.reason import Reason
from tuner.sentences import failed
from tuner.server.server import Endpoints, credentials, ssl_context
from tuner.spec.server import Tls
from tuner.spec.workload import Protocol

if TYPE_CHECKING:
    import grpc  # type: ignore[import-untyped]

    from tuner.load.traffic.decoupled.streamed import StreamedCall
else:
    grpc = Deferred("grpc")

INFER = "/inference.GRPCInferenceService/ModelInfer"

#: Called once for a request, with the server's words where it was not answered.
Done = Callable[[Outcome, str], None]

_CONNECT_S = 5.0
#: HTTP answers one request at a time on a connection. Beyond this many, requests wait in the
#: client, and that wait is part of their latency.
_MOST_CONNECTIONS = 512
_FIRST_CONNECTIONS = 8
#: How gRPC's words end of a call that this side gave up.
_GIVEN_UP = ("cancelled by application!", "Cancelled upon garbage collection!")
_HEAD_END = b"\r\n\r\n"


def channel_to(address: str, tls: Tls | None, kind: Any = grpc) -> Any:
    """A channel; ``kind`` is gRPC's module, or that of its asynchronous channels.

    Each request is sent once, however large it is, and to this machine without a proxy.
    """
    options = [
        ("grpc.enable_retries", 0),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.enable_http_proxy", 0 if address.startswith(LOOPBACK) else 1),
    ]
    if tls is None:
        return kind.insecure_channel(address, options)
    return kind.secure_channel(address, credentials(tls), options)


@contextmanager
def asking(endpoints: Endpoints, connect_s: float = 0.0) -> Iterator[Any]:
    """Sends one request, as gRPC's callables do: without serialisers bytes go and come.

    ``future`` sends it, and ``streamed`` one to a decoupled model.

    ``connect_s``: how long to wait for the connection first, so that this time is not counted as
    the model's. A failure to connect shows with the first request.
    """
    with channel_to(endpoints.grpc, endpoints.tls_of("grpc")) as channel:
        if connect_s:
            with suppress(grpc.FutureTimeoutError):
                grpc.channel_ready_future(channel).result(timeout=connect_s)
        metadata = [*endpoints.headers.items()]
        send = partial(channel.unary_unary(INFER).future, metadata=metadata)
        yield SimpleNamespace(future=send, streamed=partial(_streamed, channel, metadata=metadata))


def _streamed(channel: Any, question: bytes, **more: Any) -> StreamedCall:
    from tuner.load.traffic.decoupled.streamed import StreamedCall

    return StreamedCall(channel, question, **more)


@dataclass(frozen=True)
class Reply:
    """What came of a request: an answer, or the server's words where a queue or a model refused."""

    answer: bytes | None = None
    words: str = ""
    refused: bool = False


def reply_to(call: Any, during: str, late: Reason | None = None) -> Reply:
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
        if code is grpc.StatusCode.UNAVAILABLE and refusal_in(words):
            return Reply(words=words, refused=True)
        if late and code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise failed(LoadFailedError, late) from error
        lost = code is grpc.StatusCode.UNAVAILABLE and is_lost(words)
        if lost or code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise ServerGoneError(f"{during}: {words}") from error
        return Reply(words=words)


class Caller(Interface):
    """Sends the requests of a process."""

    async def connect(self) -> None:
        """Connects; raises `LoadFailedError` where no server answers."""

    def send(self, request: bytes, done: Done) -> None:
        """Sends it now; ``done`` is called later, or never if `close` comes first."""

    async def drain(self) -> None:
        """Waits, once the time is over, for answers that are still coming."""

    async def account(self, answers: Answers, offset_ns: int) -> Answers:
        """The record of the run, of the same requests, with what is known here.

        ``offset_ns``: from the monotonic clock to that of ``answers``.
        """

    async def close(self) -> None: ...


class SingleCalls:
    """What a caller does besides that sends each request by itself."""

    async def drain(self) -> None:
        """Nothing comes after an answer."""

    async def account(self, answers: Answers, offset_ns: int) -> Answers:
        del offset_ns
        return answers


class GrpcCalls(SingleCalls):
    """Calls over one channel. Without serialisers bytes are sent, and answers stay unread."""

    def __init__(self, address: str, tls: Tls | None, headers: Mapping[str, str]) -> None:
        self._address = address
        self._metadata = tuple(headers.items())
        self._channel = channel_to(address, tls, grpc.aio)
        self._call = self._channel.unary_unary(INFER)
        self._under_way: set[Any] = set()

    async def connect(self) -> None:
        """Connects; raises `LoadFailedError` where no server answers."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise _nobody(self._address) from error

    def send(self, request: bytes, done: Done) -> None:
        """Sends it now; ``done`` is called later, or never if `close` comes first."""
        call = self._call(request, metadata=self._metadata)
        self._under_way.add(call)  # nobody else holds it
        call.add_done_callback(partial(self.ended, self._under_way, done))

    def ask(self, request: bytes, answered: Callable[[Outcome, str, bytes], None]) -> None:
        """Sends it as `send` does, and tells its answer too, which takes a task."""
        call = self._call(request, metadata=self._metadata)
        reading = asyncio.ensure_future(self._answer(call, answered))
        self._under_way.add(reading)
        reading.add_done_callback(self._under_way.discard)

    async def _answer(self, call: Any, answered: Callable[[Outcome, str, bytes], None]) -> None:
        answer = b""
        with suppress(grpc.RpcError):
            answer = await call
        self.ended(set(), lambda outcome, words: answered(outcome, words, answer), call)

    @staticmethod
    def ended(under_way: set[Any], done: Done, call: Any) -> None:
        """Reports how a call ended; nothing for a call that was given up.

        A model may answer with any status, also with that of a lost connection or a given-up call.
        """
        under_way.discard(call)
        code = _at_once(call.code())
        if code is grpc.StatusCode.OK:
            done(Outcome.ANSWERED, "")
            return
        words = str(_at_once(call.details()))
        if code is grpc.StatusCode.CANCELLED and words.endswith(_GIVEN_UP):
            return
        if code is not grpc.StatusCode.UNAVAILABLE:
            done(Outcome.FAILED, words)
        else:
            done(refusal_in(words) or (Outcome.LOST if is_lost(words) else Outcome.FAILED), words)

    async def close(self) -> None:
        await self._channel.close()  # Triton drops what it has not begun


class HttpCalls(SingleCalls):
    """Calls over as many connections as there are requests under way; each is used again."""

    def __init__(self, address: str, tls: Tls | None) -> None:
        self._address = address
        self._tls = ssl_context(tls)
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._waiting: deque[tuple[bytes, Done]] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    async def connect(self) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                self._idle = [await self._opened() for _ in range(_FIRST_CONNECTIONS)]
        except (TimeoutError, OSError) as error:
            raise _nobody(self._address) from error

    def send(self, request: bytes, done: Done) -> None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closing():
                connection.ask(request, done)
                return
        self._waiting.append((request, done))
        if len(self._all) + len(self._opening) < _MOST_CONNECTIONS:
            task = asyncio.get_running_loop().create_task(self._one_more())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _one_more(self) -> None:
        try:
            connection = await self._opened()
        except OSError as error:
            if self._waiting:
                self._waiting.popleft()[1](Outcome.LOST, str(error))
        else:
            self._rest(connection)

    async def _opened(self) -> Connection:
        loop = asyncio.get_running_loop()
        host = self._host.strip("[]")
        _, connection = await loop.create_connection(
            lambda: Connection(self._rest, self._all.discard), host, self._port, ssl=self._tls
        )
        self._all.add(connection)
        return connection

    def _rest(self, connection: Connection) -> None:
        """A connection is free: for what waits, or for what comes."""
        if self._closed:
            return
        if self._waiting:
            connection.ask(*self._waiting.popleft())
        else:
            self._idle.append(connection)

    async def close(self) -> None:
        self._closed = True
        for task in self._opening:
            task.cancel()
        for connection in list(self._all):
            connection.drop()


class Connection(asyncio.Protocol):
    """One connection: a request at a time, and of its answer the status and the error's words."""

    def __init__(
        self, rest: Callable[[Connection], None], gone: Callable[[Connection], None]
    ) -> None:
        self._rest = rest
        self._gone = gone
        self._done: Done | None = None
        self._received = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes, done: Done) -> None:
        self._done = done
        self._transport.write(request)

    def is_closing(self) -> bool:
        return bool(self._transport.is_closing())

    def drop(self) -> None:
        self._done = None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(_HEAD_END)
        if head_end < 0:
            return
        status, size = _head(bytes(self._received[:head_end]))
        end = head_end + len(_HEAD_END) + size
        if len(self._received) < end:
            return
        body = b"" if status == 200 else bytes(self._received[end - size : end])
        del self._received[:end]
        done, self._done = self._done, None
        if done is None:
            return
        done(*_outcome(status, body))
        if not self.is_closing():
            self._rest(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._gone(self)
        done, self._done = self._done, None
        if done is not None:
            done(Outcome.LOST, str(error or "the server closed the connection"))


def calls_over(
    protocol: Protocol, address: str, tls: Tls | None, headers: Mapping[str, str]
) -> GrpcCalls | HttpCalls:
    over_grpc = protocol is Protocol.GRPC  # over HTTP a request's bytes have its headers
    return GrpcCalls(address, tls, headers) if over_grpc else HttpCalls(address, tls)


def _head(head: bytes) -> tuple[int, int]:
    """Status, and length of the body; Triton always tells that."""
    first, *lines = head.split(b"\r\n")
    lengths = [line for line in lines if line[:15].lower() == b"content-length:"]
    return int(first.split(b" ", 2)[1]), int(lengths[0][15:]) if lengths else 0


def _outcome(status: int, body: bytes) -> tuple[Outcome, str]:
    if status == 200:
        return Outcome.ANSWERED, ""
    try:
        words = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        words = f"HTTP status {status}"
    return refusal_in(words) or Outcome.FAILED, words


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that has nothing to wait for, without a task for it."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value
    raise AssertionError("a call that has ended has its status")


def _nobody(address: str) -> LoadFailedError:
    return LoadFailedError(f"no connection to {address} in {_CONNECT_S:g} s")
