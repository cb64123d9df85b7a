"""A server that answers every request at once, without content: ``python -m ... PROTOCOL``.

It prints its port. With no model behind it, a load shows what a client spends on a request.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]

from tuner.machine.process import ADDRESS
from tuner.spec.workload import Protocol

_HEAD_END = b"\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def main(protocol: Protocol) -> None:
    if protocol.over_http:
        asyncio.run(_over_http())
        return
    server = grpc.server(
        ThreadPoolExecutor(1), [_Unread()], options=[("grpc.max_receive_message_length", -1)]
    )
    port = server.add_insecure_port(f"{ADDRESS}:0")
    server.start()
    _print_port(port)
    server.wait_for_termination()


def _print_port(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


class _Unread(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, _: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")


async def _over_http() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, ADDRESS, 0)
    _print_port(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Connection(asyncio.Protocol):
    """Reads requests whose head arrives in one piece, as tune's client writes it."""

    def __init__(self) -> None:
        self._left = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._left:
            head, _, data = data.partition(_HEAD_END)
            self._left = int(head.lower().rpartition(b"content-length:")[2].split(b"\r")[0])
        self._left -= len(data)
        if not self._left:
            self._transport.write(_ANSWER)


if __name__ == "__main__":
    main(Protocol(sys.argv[1]))
