"""Removes a container, and files, once its standard input ends.

Run as a script by `tuner.triton.docker` (``python -P container_reaper.py ID FILE...``), which holds
the other end of the pipe. The kernel closes that end when the launcher dies, whatever kills it, so
the container never outlives its launcher. A parent-death signal would not do: the container
belongs to the engine, not to the launcher. The script runs in its own session, out of reach of the
terminal's Ctrl-C.
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
    """Kills and deletes a container; one that is gone already is fine.

    Raises:
        docker.errors.APIError: The engine refuses.
    """
    # Podman's forced removal asks politely first and waits up to 10 s.
    with contextlib.suppress(APIError):
        client.api.kill(container)
    with contextlib.suppress(NotFound):
        client.api.remove_container(container, v=True, force=True)


if __name__ == "__main__":
    main()
