"""A running tritonserver, however it is run, and how requests reach it: plain or over TLS.

Whoever reaches a Triton in explicit model control can make it load a model whose files come with
the request, and so run code as the server's user. Loopback keeps out other machines, not other
users: they need the key that each server is started with (docs/security.md). Requests that measure
need none.
"""

from __future__ import annotations

import io
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from tuner.errors import shortened
from tuner.modelconfig.files import ModelFiles
from tuner.spec.server import Tls

if TYPE_CHECKING:
    from tuner.server.shared_memory import SharedRegion

#: What an answer may have, headers included. Metrics of a thousand models are 5 MB.
_MOST_BYTES = {"http": 1 << 20, "metrics": 8 << 20}


#: Of a server's environment; one that is None is not set.
Variables = Mapping[str, str | None]
NO_VARIABLES: Variables = MappingProxyType({})


@dataclass(frozen=True)
class Endpoints:
    """Addresses of a server.

    Attributes:
        key: Of a server whose control is closed to others.
        headers: What each request carries, names in lower case; values may be secrets.
        shared: Memory that it has registered, for the inputs of requests.
    """

    http: str
    grpc: str
    metrics: str | None
    key: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    shared: SharedRegion | None = field(default=None, repr=False)

    def tls_of(self, service: str) -> Tls | None:
        """The TLS of one of its endpoints; None where that is plain."""
        return self.tls if self.tls is not None and service in self.tls.services else None


class Server(Protocol):
    """A server that answers, for as long as its context is open."""

    @property
    def endpoints(self) -> Endpoints:
        """Its addresses."""

    def alive(self) -> bool:
        """False once the process or container has ended, or a remote one stops answering."""

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the server's log; empty when it cannot be read (remote)."""

    def put_back(self) -> int:
        """Puts threads that left the server's CPUs back on them; how many there were."""


class Place(Enum):
    """The machine or container of a mode's servers, and so what of this machine is theirs."""

    HERE = "processes of this machine"
    CONTAINER = "containers of this machine"
    ELSEWHERE = "not known"  # nothing of this machine is taken to be theirs


class ServerLauncher(Protocol):
    """Starts servers. One for each mode; made from the spec, holds no process itself."""

    @property
    def restartable(self) -> bool:
        """Whether a restart can change the server's arguments (False for remote)."""

    @property
    def place(self) -> Place:
        """The place of its servers."""

    @property
    def python(self) -> Path | None:
        """The Python whose packages Python models import; None means the server's own."""

    def command_line(self) -> Sequence[str]:
        """The command line of its servers, for display; empty where it starts no program."""

    def version(self) -> str:
        """What serves, as exactly as it can be known: only equal versions are comparable.

        Raises:
            EnvironmentNotReadyError: The engine, the image or the remote server is not there.
        """

    def check_backends(self, models: Sequence[ModelFiles]) -> str:
        """The backends of the models, or what of them is not known before it serves; starts none.

        Raises:
            EnvironmentNotReadyError: Its servers lack one, or a model.
        """

    def on(self, cpus: tuple[int, ...]) -> ServerLauncher:
        """The same for servers on these CPUs; empty: on any."""

    def launch(
        self, server_args: Sequence[str], log: Path, environment: Variables = NO_VARIABLES
    ) -> AbstractContextManager[Server]:
        """A server over the repository, in explicit model control, no model loaded, ready.

        ``environment`` comes after the spec's variables.

        On leaving the context every process, port and temporary file of it is gone.

        Raises:
            EnvironmentNotReadyError: It cannot start at all, or is in the wrong control mode.
            ServerGoneError: It started and died before it was ready.
        """


def ssl_context(tls: Tls | None) -> ssl.SSLContext | None:
    """TLS for HTTP, None for none; raises `OSError` where a file is no certificate or key."""
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context


def credentials(tls: Tls | None) -> Any:
    """TLS for a channel of gRPC; None for a plain one."""
    import grpc  # type: ignore[import-untyped]

    if tls is None:
        return None
    files = (file and file.read_bytes() for file in tls.ca_key_and_cert)
    return grpc.ssl_channel_credentials(*files)


class _Answer(io.RawIOBase):
    """What a socket receives: by one deadline and up to a size, neither of which HTTP has."""

    def __init__(self, receiver: Any, deadline: float, most_bytes: int) -> None:
        self._receiver, self._deadline, self._left_bytes = receiver, deadline, most_bytes

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._receiver.settimeout(left_s)
        received = int(self._receiver.recv_into(buffer))
        self._left_bytes -= received
        if self._left_bytes < 0:
            raise OSError("the answer is too long for what was asked")
        return received


def get(endpoints: Endpoints, service: str, path: str, timeout_s: float) -> bytes:
    """Asks a server over HTTP, and returns its answer, all of which has come in time.

    Raises:
        OSError: It does not answer, or not with status 200.
    """
    address, tls = getattr(endpoints, service), ssl_context(endpoints.tls_of(service))
    deadline, most_bytes = time.monotonic() + timeout_s, _MOST_BYTES[service]
    connection = HTTPConnection(address, timeout=timeout_s)
    if tls is not None:
        connection = HTTPSConnection(address, timeout=timeout_s, context=tls)
    try:
        connection.request("GET", path, headers=dict(endpoints.headers))
        received: Any = _Answer(connection.sock, deadline, most_bytes)
        with HTTPResponse(received, method="GET") as answer:
            answer.begin()
            if answer.status != HTTPStatus.OK:
                raise OSError(f"HTTP status {answer.status}")
            body = answer.read(most_bytes)  # more than it may have
            length = answer.headers.get("Content-Length")
            if not answer.chunked and length is not None and len(body) < int(length):
                raise OSError(f"the answer ends after {len(body):,} of {int(length):,} bytes")
            return body
    except (HTTPException, ValueError) as error:  # the length of a chunk may be negative
        raise OSError(f"no HTTP: {shortened(str(error))}") from error
    finally:
        connection.close()


#: What changes the server, by Triton's names. perf_analyzer needs none of it without shared memory.
PROTOCOLS = ("model-repository", "shared-memory", "trace", "logging")
#: tritonserver's arguments; versions from before 2024 may lack them.
FLAGS = ("--grpc-restricted-protocol", "--http-restricted-api")
_HEADER = "tune-key"


def new_key() -> str:
    return secrets.token_hex(16)


def key_arguments(key: str | None, protocols: Sequence[str] = PROTOCOLS) -> list[str]:
    """Tritonserver's arguments that close ``protocols``; none without a key."""
    if key is None or not protocols:
        return []
    return [f"{flag}={','.join(protocols)}:{_HEADER}={key}" for flag in FLAGS]


def key_headers(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {f"triton-grpc-protocol-{_HEADER}": key}
