"""A model in a repository on disk: its config file and its version directories."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.suggest import did_you_mean

CONFIG_NAME = "config.pbtxt"


@dataclass(frozen=True)
class ModelFiles:
    """What a model's directory held when it was read.

    Attributes:
        model: Its name.
        directory: Its directory in the repository.
        path: Its config.pbtxt, whether or not it exists.
        text: The config, line endings as they are; empty when there is no file, which leaves
            everything to the backend's auto-complete.
        exists: There is a config.pbtxt.
        sha256: Of the file's bytes; of no bytes when there is no file.
        versions: Its version directories, ascending.
    """

    model: str
    directory: Path
    path: Path
    text: str
    exists: bool
    sha256: str
    versions: tuple[int, ...]

    def config(self) -> ModelConfig:
        """The config as a message.

        Raises:
            SpecError: The text does not parse.
        """
        return parse(self.text, str(self.path))

    @property
    def decoupled(self) -> bool:
        """One request may have any number of responses."""
        return bool(self.config().model_transaction_policy.decoupled)


def read_model(repository: Path, model: str) -> ModelFiles:
    """Reads ``model``'s directory; changes nothing.

    Raises:
        EnvironmentNotReadyError: The repository or the config cannot be read.
        SpecError: There is no such model, or its config is not UTF-8.
    """
    directory = model_directory(repository, model)
    path = directory / CONFIG_NAME
    exists = path.is_file()
    data = b""
    if exists:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise EnvironmentNotReadyError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{path}:{line}:1: this is not UTF-8", "save the file as UTF-8") from error
    digest = hashlib.sha256(data).hexdigest()
    return ModelFiles(model, directory, path, text, exists, digest, versions(directory))


def model_directory(repository: Path, model: str) -> Path:
    """Raises:
    EnvironmentNotReadyError: The repository cannot be read.
    SpecError: There is no such model.
    """
    names = model_names(repository)
    if model not in names:
        raise SpecError(
            f"there is no model {model!r} in {repository}",
            did_you_mean(model, names) or f"it has {', '.join(names) or 'no models'}",
        )
    return repository / model


def model_names(repository: Path) -> list[str]:
    """The directories of a repository, as Triton takes them for models; sorted.

    Raises:
        EnvironmentNotReadyError: It is no directory that can be read.
    """
    try:
        entries = sorted(repository.iterdir())
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"cannot read the model repository {repository}: {error.strerror}",
            "name the directory that holds one directory for each model",
        ) from error
    return [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]


def versions(directory: Path) -> tuple[int, ...]:
    """Triton's version directories: names that are positive numbers without a leading zero."""
    names = (entry.name for entry in directory.iterdir() if entry.is_dir())
    return tuple(sorted(int(n) for n in names if n.isdecimal() and not n.startswith("0")))
