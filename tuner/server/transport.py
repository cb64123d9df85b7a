"""How requests reach a server: plain or over TLS, with the headers that it asks for."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

from tuner.server.server import Endpoints
from tuner.spec.server import Tls


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


def get(endpoints: Endpoints, service: str, path: str, timeout_s: float) -> bytes:
    """Asks a server over HTTP, and returns its answer.

    Raises:
        OSError: It does not answer, or not with status 200.
    """
    address, tls = getattr(endpoints, service), ssl_context(endpoints.tls_of(service))
    connection = HTTPConnection(address, timeout=timeout_s)
    if tls is not None:
        connection = HTTPSConnection(address, timeout=timeout_s, context=tls)
    try:
        connection.request("GET", path, headers=dict(endpoints.headers))
        answer = connection.getresponse()
        if answer.status != HTTPStatus.OK:
            raise OSError(f"HTTP status {answer.status}")
        return answer.read(64 << 20)  # metrics of a thousand models are 5 MB
    except HTTPException as error:
        raise OSError(f"no HTTP: {error}") from error
    finally:
        connection.close()
