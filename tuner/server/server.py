"""The interfaces of a running tritonserver and its launchers; requests to it, with or without TLS.

Anyone who can send requests to a Triton in explicit model control can load a model whose files come
with the request, and so run code as the server's user. The loopback address excludes other
machines, not other users of this one: for them, each server requires a key (docs/security.md).
Inference requests need no key.
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

#: Most bytes of a response, including headers. Metrics of a thousand models have 5 MB.
_MOST_BYTES = {"http": 1 << 20, "metrics": 8 << 20}


#: Environment variables of a server; a variable with the value None is not set.
Variables = Mapping[str, str | None]
NO_VARIABLES: Variables = MappingProxyType({})


@dataclass(frozen=True)
class Endpoints:
    """Addresses of a server.

    Attributes:
        http: HOST:PORT of the HTTP endpoint.
        grpc: HOST:PORT of the gRPC endpoint.
        metrics: HOST:PORT of the metrics endpoint; None: there is none.
        key: Key that requests for control need; None: they need none.
        tls: TLS settings of a remote server.
        headers: Headers of each request, names in lower case; values may be secrets.
        shared: Registered shared memory for the inputs of requests.
    """

    http: str
    grpc: str
    metrics: str | None
    key: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    shared: SharedRegion | None = field(default=None, repr=False)

    def tls_of(self, service: str) -> Tls | None:
        """The TLS settings of an endpoint; None: no TLS."""
        return self.tls if self.tls is not None and service in self.tls.services else None


class Server(Protocol):
    """A server that runs while its context is open."""

    @property
    def endpoints(self) -> Endpoints:
        """Its addresses."""

    def alive(self) -> bool:
        """Whether the process or container runs, or a remote server answers."""

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the server's log; empty if it cannot be read (remote)."""

    def put_back(self) -> int:
        """Moves threads that left the server's CPUs back; returns their number."""


class Place(Enum):
    """The location of servers, by which their memory and processes are found."""

    HERE = "processes of this machine"
    CONTAINER = "containers of this machine"
    ELSEWHERE = "not known"  # perhaps another machine


class ServerLauncher(Protocol):
    """Starts servers in one mode. It is made from the spec, and owns no process itself."""

    @property
    def restartable(self) -> bool:
        """Whether a restart can change the server's arguments (false for remote)."""

    @property
    def place(self) -> Place:
        """The location of its servers."""

    @property
    def python(self) -> Path | None:
        """The Python whose packages Python models import; None: the server's own."""

    def command_line(self) -> Sequence[str]:
        """The command line of its servers, for display; empty if it starts no program."""

    def version(self) -> str:
        """The version of its servers, as exact as it can be known: results compare only if equal.

        Raises:
            EnvironmentNotReadyError: The engine, the image or the remote server does not exist.
        """

    def check_backends(self, models: Sequence[ModelFiles]) -> str:
        """Checks that its servers have the backends of the models; starts no server.

        Returns:
            The backends, or what can only be known from a running server.

        Raises:
            EnvironmentNotReadyError: Its servers lack a backend or a model.
        """

    def on(self, cpus: tuple[int, ...]) -> ServerLauncher:
        """The launcher for servers on these CPUs, by number; empty: any."""

    def launch(
        self, server_args: Sequence[str], log: Path, environment: Variables = NO_VARIABLES
    ) -> AbstractContextManager[Server]:
        """Starts a server for the repository in explicit model control; waits until it is ready.

        No model is loaded. On leaving the context, all its processes, ports and temporary files are
        removed.

        Args:
            server_args: Arguments of tritonserver in addition to the spec's.
            log: File that the server's output is appended to.
            environment: Environment variables; they override the spec's.

        Raises:
            EnvironmentNotReadyError: It cannot start, or has the wrong control mode.
            ServerGoneError: It died before it was ready.
        """


def ssl_context(tls: Tls | None) -> ssl.SSLContext | None:
    """TLS for HTTP; None: no TLS. Raises `OSError` if a file is not a certificate or key."""
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context


def credentials(tls: Tls | None) -> Any:
    """TLS for a gRPC channel; None: no TLS."""
    import grpc  # type: ignore[import-untyped]

    if tls is None:
        return None
    files = (file and file.read_bytes() for file in tls.ca_key_and_cert)
    return grpc.ssl_channel_credentials(*files)


class _Answer(io.RawIOBase):
    """Reads a socket with one deadline and a maximum size for the entire response."""

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
            raise OSError("the response is too long")
        return received


def get(endpoints: Endpoints, service: str, path: str, timeout_s: float) -> bytes:
    """Sends a GET request, and returns the body of the response.

    Args:
        service: `http` or `metrics`.
        timeout_s: Timeout for the entire response, in seconds.

    Raises:
        OSError: There is no complete response in time, or its status is not 200.
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
            body = answer.read(most_bytes)  # the limit includes headers, so this is all
            length = answer.headers.get("Content-Length")
            if not answer.chunked and length is not None and len(body) < int(length):
                raise OSError(f"the response ends after {len(body):,} of {int(length):,} bytes")
            return body
    except (HTTPException, ValueError) as error:  # a chunk may have a negative length
        raise OSError(f"not an HTTP response: {shortened(str(error))}") from error
    finally:
        connection.close()


#: Triton's names of the protocols that change a server. perf_analyzer needs none of them without
#: shared memory.
PROTOCOLS = ("model-repository", "shared-memory", "trace", "logging")
#: Arguments of tritonserver that restrict protocols; versions before 2024 may lack them.
FLAGS = ("--grpc-restricted-protocol", "--http-restricted-api")
_HEADER = "tune-key"


def new_key() -> str:
    return secrets.token_hex(16)


def key_arguments(key: str | None, protocols: Sequence[str] = PROTOCOLS) -> list[str]:
    """Arguments of tritonserver that restrict ``protocols`` to the key; empty without a key."""
    if key is None or not protocols:
        return []
    return [f"{flag}={','.join(protocols)}:{_HEADER}={key}" for flag in FLAGS]


def key_headers(key: str | None) -> Mapping[str, str]:
    return {} if key is None else {f"triton-grpc-protocol-{_HEADER}": key}
