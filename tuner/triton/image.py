"""Lists files of an image in a container without network that starts no server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

#: The directory of the backends in NVIDIA's images.
BACKENDS = "/opt/tritonserver/backends"
_LISTED_S = 8
_NOT_THERE = 1


def list_backends(
    client: Any, options: Mapping[str, Any], directory: str = BACKENDS
) -> frozenset[str] | None:
    """The backends in a directory of an image; None if the directory cannot be listed.

    Args:
        options: Arguments of the SDK's ``containers.create`` for any container of the image.
        directory: The directory in the image.
    """
    from docker.errors import APIError
    from requests.exceptions import RequestException

    pattern = ("-name", "libtriton_*.so", "-o", "-name", "model.py")
    try:
        container = client.containers.create(
            **options,
            entrypoint=["find"],
            command=["-L", directory, "-maxdepth", "2", *pattern],
            network_mode="none",
        )
    except APIError:
        return None
    try:
        container.start()
        status = container.wait(timeout=_LISTED_S)["StatusCode"]
        output = container.logs(stdout=True, stderr=False).decode(errors="replace")
    except (APIError, RequestException):
        return None
    finally:
        with suppress(APIError):
            container.remove(force=True)
    named_wrongly = status == _NOT_THERE and directory != BACKENDS
    if not output and status != 0 and not named_wrongly:
        return None
    return frozenset(PurePosixPath(line).parent.name for line in output.splitlines())
