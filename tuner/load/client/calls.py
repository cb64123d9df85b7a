"""Sends serialized requests over gRPC or HTTP, and reports the outcome of each.

Requests of a load use callbacks, without a task per request: on a busy machine they leave far less
late this way. Requests outside a load use `asking`.
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
_LIVE = "/inference.GRPCInferenceService/ServerLive"

#: Called once per request with its outcome, and the server's words where there is no answer.
Done = Callable[[Outcome, str], None]

_CONNECT_S = 5.0
#: HTTP answers one request at a time per connection. Beyond this number of connections, requests
#: wait in the client, and their latency includes that wait.
_MOST_CONNECTIONS = 512
_FIRST_CONNECTIONS = 8
#: How gRPC's messages end for a call that this side canceled.
_GIVEN_UP = ("cancelled by application!", "Cancelled upon garbage collection!")
_HEAD_END = b"\r\n\r\n"


def channel_to(address: str, tls: Tls | None, kind: Any = grpc) -> Any:
    """A channel to ``host:port``; ``kind``: gRPC's module, or that of its asynchronous channels.

    It sends requests of any size once, and uses no proxy for this machine.
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
    """Sends single requests as gRPC's callables do; without serializers they carry plain bytes.

    ``future`` sends a request, ``streamed`` sends one to a decoupled model.

    Args:
        endpoints: Addresses of the server.
        connect_s: Time to wait for the connection first, so that it does not count as the model's
            time. A failure to connect appears with the first request.
    """
    with channel_to(endpoints.grpc, endpoints.tls_of("grpc")) as channel:
        metadata = [*endpoints.headers.items()]
        if connect_s:  # gRPC's own wait for a connection looks only every 200 ms
            live = channel.unary_unary(_LIVE)
            with suppress(grpc.RpcError):
                live(b"", timeout=connect_s, metadata=metadata, wait_for_ready=True)
        send = partial(channel.unary_unary(INFER).future, metadata=metadata)
        yield SimpleNamespace(future=send, streamed=partial(_streamed, channel, metadata=metadata))


def _streamed(channel: Any, question: bytes, **more: Any) -> StreamedCall:
    from tuner.load.traffic.decoupled.streamed import StreamedCall

    return StreamedCall(channel, question, **more)


@dataclass(frozen=True)
class Reply:
    """The reply to a request: an answer, or the server's words if a queue or a model refused it."""

    answer: bytes | None = None
    words: str = ""
    refused: bool = False


def reply_to(call: Any, during: str, late: Reason | None = None) -> Reply:
    """Waits for the reply to a request sent with `asking`.

    Args:
        call: The call that ``future`` or ``streamed`` returned.
        during: The activity, for the start of an error message.
        late: The reason to report at the deadline; None: the server counts as gone.

    Raises:
        ServerGoneError: The connection is lost, or the deadline passed without ``late``.
        LoadFailedError: The deadline passed, with the reason ``late``.
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
    """Sends the requests of one client process."""

    async def connect(self) -> None:
        """Connects; raises `LoadFailedError` if no server answers."""

    def send(self, request: bytes, done: Done) -> None:
        """Sends a request now; calls ``done`` later, or never if `close` comes first."""

    async def drain(self) -> None:
        """Waits, at the end of the load, for answers that are still to come."""

    async def account(self, answers: Answers, offset_ns: int) -> Answers:
        """Completes the record of the run with what the caller knows about its requests.

        Args:
            answers: The record so far, of the same requests.
            offset_ns: From the monotonic clock to that of ``answers``.
        """

    async def close(self) -> None: ...


class SingleCalls:
    """Common methods of callers that send each request separately."""

    async def drain(self) -> None:
        """Returns at once: every request has a single answer."""

    async def account(self, answers: Answers, offset_ns: int) -> Answers:
        del offset_ns
        return answers


class GrpcCalls(SingleCalls):
    """Calls over one channel, without serializers: requests are bytes, answers stay unread."""

    def __init__(self, address: str, tls: Tls | None, headers: Mapping[str, str]) -> None:
        self._address = address
        self._metadata = tuple(headers.items())
        self._channel = channel_to(address, tls, grpc.aio)
        self._call = self._channel.unary_unary(INFER)
        self._under_way: set[Any] = set()

    async def connect(self) -> None:
        """Connects; raises `LoadFailedError` if no server answers."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise _nobody(self._address) from error

    def send(self, request: bytes, done: Done) -> None:
        """Sends a request now; calls ``done`` later, or never if `close` comes first."""
        call = self._call(request, metadata=self._metadata)
        self._under_way.add(call)  # keeps the call alive
        call.add_done_callback(partial(self.ended, self._under_way, done))

    def ask(self, request: bytes, answered: Callable[[Outcome, str, bytes], None]) -> None:
        """Like `send`, but also passes the answer on, which takes a task."""
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
        """Reports how a call ended; nothing for a call that this side canceled.

        A model may answer with any status, also with that of a lost connection or a canceled call.
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
        await self._channel.close()  # Triton drops requests that it has not started


class HttpCalls(SingleCalls):
    """Calls over one connection per request in flight; connections are reused."""

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
        """Gives a free connection to the next waiting request, or keeps it for later ones."""
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
    """One connection: one request at a time; of an answer it reads status and error message."""

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
    """Status, and length of the body; Triton always sends that length."""
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
    """The result of a coroutine that has nothing to wait for, without a task."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value
    raise AssertionError("a call that has ended has its status")


def _nobody(address: str) -> LoadFailedError:
    return LoadFailedError(f"no connection to {address} in {_CONNECT_S:g} s")
