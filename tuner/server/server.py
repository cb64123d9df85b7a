"""A running tritonserver, however it is run: one interface for local, docker and remote modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from tuner.spec.server import Tls


@dataclass(frozen=True)
class Endpoints:
    """Addresses of a server.

    Attributes:
        key: Of a server whose control is closed to others; see `tuner.server.transport`.
        headers: What each request carries, names in lower case; values may be secrets.
    """

    http: str
    grpc: str
    metrics: str | None
    key: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

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

    def shown(self) -> Sequence[str]:
        """The command line of its servers, for display; empty where it starts no program."""

    def version(self) -> str:
        """What serves, as exactly as it can be known: only equal versions are comparable.

        Raises:
            EnvironmentNotReadyError: The engine, the image or the remote server is not there.
        """

    def launch(self, server_args: Sequence[str], log: Path) -> AbstractContextManager[Server]:
        """A server over the repository, in explicit model control, no model loaded, ready.

        On leaving the context every process, port and temporary file of it is gone.

        Raises:
            EnvironmentNotReadyError: It cannot start at all, or is in the wrong control mode.
            ServerGoneError: It started and died before it was ready.
        """
