"""Free ports of 127.0.0.1."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

ADDRESS = "127.0.0.1"
#: How an address on this machine begins.
LOOPBACK = ("127.", "localhost:", "[::1]")


@contextmanager
def free_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Different free ports that nobody else gets before the context is left.

    Leave it just before the server is started. Another process may still take a port before the
    server binds it: who starts a server tries again when its log says that an address is in use.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind((ADDRESS, 0))
        yield tuple(int(held.getsockname()[1]) for held in sockets)
