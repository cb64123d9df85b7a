"""Removes a container and files when its standard input ends.

`tuner.triton.docker` runs this file as a script (``python -P container_reaper.py ID FILE...``), and
keeps the other end of the pipe open. The kernel closes that end when the launcher dies for any
reason, so the container never outlives its launcher. A parent-death signal would not suffice: the
container is a child of the engine, not of the launcher. The script runs in a separate session, so
that Ctrl-C on the terminal does not reach it.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import docker
from docker.errors import APIError, NotFound


def main() -> None:
    client = docker.from_env()
    sys.stdin.buffer.read()
    for path in map(Path, sys.argv[2:]):
        path.unlink(missing_ok=True)
    remove(client, sys.argv[1])


def remove(client: docker.DockerClient, container: str) -> None:
    """Kills and deletes a container, if it still exists.

    Raises:
        docker.errors.APIError: The engine refuses.
    """
    # Podman's forced removal sends SIGTERM first, and waits up to 10 s.
    with contextlib.suppress(APIError):
        client.api.kill(container)
    with contextlib.suppress(NotFound):
        client.api.remove_container(container, v=True, force=True)


if __name__ == "__main__":
    main()
