"""Checks that a server has what the models need, before it serves them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError
from tuner.modelconfig.backends import refused_in_names
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.known_backends import BACKENDS
from tuner.server.log import OTHER_BACKENDS
from tuner.spec.mistakes import listed
from tuner.spec.server import ServerMode

_LAST_WITH_HOLES, _LAST_IMAGE_WITH_HOLES = (2, 59, 0), "25.06"
_HOLES = (
    "older than release 25.07: anyone who can reach its ports may run code in it "
    "(docs/security.md); use a newer release"
)
#: Since release 25.09 the Python backend starts a model's process without a shell.
_FIRST_STRICT = (2, 61, 0)


_EVERY = BACKENDS["python"].images
_KINDS = {kind for row in BACKENDS.values() for kind in row.images}
_IMAGES, _NEWEST = "nvcr.io/nvidia/tritonserver", "26.09"
_IMAGE = re.compile(rf"{re.escape(_IMAGES)}:(\d\d\.\d\d)(-[\w-]+)")


def image_with(backends: Iterable[str]) -> str | None:
    """The name of NVIDIA's newest image with all these backends; None: there is no such image."""
    rows = [BACKENDS.get(name) for name in backends]
    first, *others = [() if row is None else row.images for row in rows] or [_EVERY]
    fit = (kind for kind in first if all(kind in images for images in others))
    release = min((row.last_release for row in rows if row and row.last_release), default=_NEWEST)
    return next((f"{_IMAGES}:{release}{kind}" for kind in fit), None)


def lacking_in_image(image: str, backend: str) -> str:
    """Why one of NVIDIA's images lacks a backend, by its name; empty: it has it, or may have it."""
    match, row = _IMAGE.fullmatch(image), BACKENDS.get(backend)
    if match is None or row is None:
        return ""
    release, kind = match.groups()
    if row.last_release and release > row.last_release:
        return f"NVIDIA's images have the {backend} backend up to release {row.last_release} only"
    if kind in _KINDS and kind not in row.images:
        return f"NVIDIA's images {kind[1:]} have no {backend} backend"
    return ""


def backends_of(models: Iterable[ModelFiles]) -> dict[str, Path]:
    """The backends that models need, each with the directory of a model that needs it.

    A model that contains the library that its config names in ``runtime`` needs none.
    """
    wanted = {
        files.backend(config): files.directory
        for files in models
        if not _brings(files, (config := files.config()).runtime)
    }
    return {backend: model for backend, model in wanted.items() if backend}


def _brings(files: ModelFiles, runtime: str) -> bool:
    """Whether the model has the library in its directory or a version's, as Triton 2.51 looks."""
    places = (files.directory, *(files.directory / str(version) for version in files.versions))
    return bool(runtime) and any((place / runtime).is_file() for place in places)


def refuse_lacking(
    wanted: Mapping[str, Path], has: Collection[str], server: str, mode: ServerMode
) -> str:
    """Checks that a server has the backends of the models; returns their names.

    Args:
        wanted: Backends, each with the directory of a model, which may contain the backend.
        has: Backends of the server.
        server: The server, for the message.
        mode: The server's mode, for the hint.

    Raises:
        EnvironmentNotReadyError: A backend is missing.
    """
    for backend, model in wanted.items():
        library = f"libtriton_{backend}*.so"
        in_model = any(any(place.glob(library)) for place in (model, *model.iterdir()))
        if backend not in has and not in_model:
            available = f"only {listed(sorted(has))}" if has else "none"
            image = image_with(wanted)
            raise EnvironmentNotReadyError(
                f"{model.name} needs the {backend} backend, and {server} has {available}",
                OTHER_BACKENDS[mode] + (f" ({image})" if image else ""),
            )
    return listed(wanted) or "none required"


def backend_directory(args: Iterable[str]) -> Path | None:
    """The directory of backends in a server's arguments; the last one counts. None: no argument."""
    pairs = ((*arg.partition("=")[::2], after) for arg, after in pairwise([*args, ""]))
    named = [value or after for flag, value, after in pairs if flag == "--backend-directory"]
    return Path(named[-1]) if named else None


def refuse_names(version: str, models: Iterable[ModelFiles]) -> None:
    """Checks that a server of this version accepts the names of the models.

    Raises:
        EnvironmentNotReadyError: It refuses a name.
    """
    if (release_of(version) or (0,)) < _FIRST_STRICT:
        return
    for files in models:
        config = files.config()
        names = [files.model, *(group.name for group in config.instance_group)]
        for name in names if files.backend(config) == "python" else ():
            if bad := refused_in_names(name):
                raise EnvironmentNotReadyError(
                    f"{name!r} has {' '.join(bad)} in its name, and Triton "
                    f"{version.partition(',')[0]} refuses such Python models",
                    "rename it; use letters, digits, - and _",
                )


def holes_of(version: str) -> str:
    """A warning of public vulnerabilities of a version; empty if none are known."""
    release = release_of(version)
    return _HOLES if release is not None and release <= _LAST_WITH_HOLES else ""


def holes_of_image(name: str) -> str:
    """A warning of public vulnerabilities, by the release in the name of an NVIDIA image."""
    match = re.search(r"tritonserver:(\d\d\.\d\d)-", name)
    return f"{name} is {_HOLES}" if match and match[1] <= _LAST_IMAGE_WITH_HOLES else ""


def release_of(version: str) -> tuple[int, ...] | None:
    """The three numbers at the beginning of a version; None: there are none."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else None
