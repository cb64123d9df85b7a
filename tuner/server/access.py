"""Closes a server's control to the other users of its machine.

Whoever reaches a Triton in explicit model control can make it load a model whose files come with
the request, and so run code as the server's user. Loopback keeps out other machines, not other
users. So each server is started with its own key, and accepts requests that change it only with
that key in a header. Requests that measure need no key.

The key is in the server's argument list, the only place where Triton takes it. Whoever may read
that (`ps`, unless ``/proc`` is mounted with ``hidepid``) has the key: a hurdle, not a wall.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

#: What changes the server, by Triton's names. perf_analyzer needs none of it without shared memory.
PROTOCOLS = ("model-repository", "shared-memory", "trace", "logging")
#: tritonserver's arguments; versions from before 2024 may lack them.
FLAGS = ("--grpc-restricted-protocol", "--http-restricted-api")
_HEADER = "tune-key"


def new_key() -> str:
    """A key that nobody can guess."""
    return secrets.token_hex(16)


def arguments(key: str | None, protocols: Sequence[str] = PROTOCOLS) -> list[str]:
    """Tritonserver's arguments that close ``protocols``; none without a key."""
    if key is None or not protocols:
        return []
    return [f"{flag}={','.join(protocols)}:{_HEADER}={key}" for flag in FLAGS]


def grpc_headers(key: str | None) -> Mapping[str, str]:
    """What a request over gRPC must carry."""
    return {} if key is None else {f"triton-grpc-protocol-{_HEADER}": key}


def unknown_to(reason: str) -> bool:
    """Whether a server ended because it is too old to know `FLAGS`."""
    return any(flag in reason for flag in FLAGS)
