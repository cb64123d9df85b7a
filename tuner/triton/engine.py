"""Access to a container engine with Docker's API, with errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from tuner.errors import EnvironmentNotReadyError
from tuner.reason import Reason, ReasonKind
from tuner.sentences import failed

#: Timeouts of the first request and of later ones, in seconds: creating a container may take long.
_ANSWER_S, _REQUEST_S = 5, 60


@contextmanager
def engine(environment: Mapping[str, str]) -> Iterator[Any]:
    """A client of the engine that the environment names.

    Raises:
        EnvironmentNotReadyError: No engine answers.
    """
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(environment=dict(environment), timeout=_ANSWER_S)
    except DockerException as error:
        where = environment.get("DOCKER_HOST", "the default socket")
        # The SDK's message contains the system's error as a tuple.
        words = re.sub(r".*\(\d+, '(.*?)'\)\)", r"\1", str(error))
        raise EnvironmentNotReadyError(
            f"no container engine answers at {where}: {words}",
            "start one, or set DOCKER_HOST to its socket, e.g. Podman's; your user must be in the "
            "docker group",
        ) from error
    client.api.timeout = _REQUEST_S
    with closing(client):
        yield client


@contextmanager
def explained() -> Iterator[None]:
    """Turns an error of the engine into one that says what to do."""
    from docker.errors import APIError

    try:
        yield
    except APIError as error:
        facts = {"words": str(error.explanation)}
        raise failed(
            EnvironmentNotReadyError,
            Reason(ReasonKind.ENGINE_REFUSES, facts=facts),
            "check server.image, mounts and gpus in the spec; GPUs need the NVIDIA Container "
            "Toolkit",
        ) from error


def local_image(client: Any, name: str) -> Any:
    """An image on this machine.

    Raises:
        EnvironmentNotReadyError: The image is not on this machine, or the engine refuses.
    """
    from docker.errors import ImageNotFound

    with explained(), suppress(ImageNotFound):
        return client.images.get(name)
    raise EnvironmentNotReadyError(
        f"the image {name} is not on this machine",
        f"fetch it with `docker pull {name}`, or check server.image in the spec",
    )
