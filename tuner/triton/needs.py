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
_RELEASE = "nvcr.io/nvidia/tritonserver:26.09"


def image_with(backends: Iterable[str]) -> str | None:
    """The name of an image of NVIDIA's that has all of these; None where none has."""
    rows = [BACKENDS.get(name) for name in backends]
    first, *others = [() if row is None else row.images for row in rows] or [_EVERY]
    fit = (kind for kind in first if all(kind in images for images in others))
    return next((f"{_RELEASE}{kind}" for kind in fit), None)


def backends_of(models: Iterable[ModelFiles]) -> dict[str, Path]:
    """The backends that models need, each with the directory of a model.

    None of a model that brings the library that its config names in ``runtime``.
    """
    wanted = {
        files.backend(config): files.directory
        for files in models
        if not _brings(files, (config := files.config()).runtime)
    }
    return {backend: model for backend, model in wanted.items() if backend}


def _brings(files: ModelFiles, runtime: str) -> bool:
    """Triton 2.51 opens such a library in the version's directory, or in the model's."""
    places = (files.directory, *(files.directory / str(version) for version in files.versions))
    return bool(runtime) and any((place / runtime).is_file() for place in places)


def refuse_lacking(
    wanted: Mapping[str, Path], has: Collection[str], server: str, mode: ServerMode
) -> str:
    """The backends that are ``wanted``, all of which a server ``has`` or a model brings along.

    Raises:
        EnvironmentNotReadyError: It lacks one.
    """
    for backend, model in wanted.items():
        library = f"libtriton_{backend}*.so"
        in_model = any(any(place.glob(library)) for place in (model, *model.iterdir()))
        if backend not in has and not in_model:
            available = f"only {listed(sorted(has))}" if has else "none"
            raise EnvironmentNotReadyError(
                f"{model.name} needs the {backend} backend, and {server} has {available}",
                OTHER_BACKENDS[mode],
            )
    return listed(wanted) or "none required"


def backend_directory(args: Iterable[str]) -> Path | None:
    """The directory of backends that a server's arguments name: of several, the last one counts."""
    pairs = ((*arg.partition("=")[::2], after) for arg, after in pairwise([*args, ""]))
    named = [value or after for flag, value, after in pairs if flag == "--backend-directory"]
    return Path(named[-1]) if named else None


def refuse_names(version: str, models: Iterable[ModelFiles]) -> None:
    """Returns if a server of this version loads models with such names.

    Raises:
        EnvironmentNotReadyError: It does not.
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
                    f"{version.partition(',')[0]} loads no such Python model",
                    "rename it, with letters, digits, - and _",
                )


def holes_of(version: str) -> str:
    """A warning of public holes; empty of a release without any that are known here."""
    release = release_of(version)
    return _HOLES if release is not None and release <= _LAST_WITH_HOLES else ""


def holes_of_image(name: str) -> str:
    """The same warning, by the release that the name of one of NVIDIA's images has."""
    match = re.search(r"tritonserver:(\d\d\.\d\d)-", name)
    return f"{name} is {_HOLES}" if match and match[1] <= _LAST_IMAGE_WITH_HOLES else ""


def release_of(version: str) -> tuple[int, ...] | None:
    """The three numbers that a version begins with."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else None
