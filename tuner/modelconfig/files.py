"""A model in a repository on disk: its config file and its version directories."""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from os.path import commonpath, lexists, realpath
from pathlib import Path

from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.modelconfig.backends import FILES, backend_of, is_completed
from tuner.modelconfig.encoding import decode
from tuner.modelconfig.message import parse
from tuner.modelconfig.schema import ModelConfig
from tuner.regular import is_there, read_regular
from tuner.spec.mistakes import meant_or_listed, path_meant
from tuner.spec.paths import CONFIG_NAME, CONFIG_NAMES

#: No file system has longer names.
_NAME_BYTES = 255
#: How deep repositories are searched for in a folder, and in how many folders of one depth.
_DEPTH, _FOLDERS = 5, 200


@dataclass(frozen=True)
class ModelFiles:
    """The content of a model's directory when it was read.

    Attributes:
        text: The config, line endings as they are; empty when there is no file, which leaves
            everything to the backend's auto-complete.
        sha256: Of the file, which a later write compares; None when there is none.
        encoding: Of the text in the file, see `tuner.modelconfig.encoding`.
        write_to: The file in the directory that a winner is written to.
    """

    model: str
    directory: Path
    path: Path
    text: str
    sha256: str | None
    versions: tuple[int, ...]
    encoding: str
    write_to: str = CONFIG_NAME

    def config(self) -> ModelConfig:
        """The config as a message.

        Raises:
            SpecError: The text does not parse.
        """
        return parse(self.text, str(self.path))

    def completes(self, config: ModelConfig) -> bool:
        """Loading the model may complete ``config``: its backend does, or its own Python code."""
        backend = self.backend(config)
        if backend == "python":
            return self.mentions("auto_complete_config")
        return is_completed(config, backend)

    def backend(self, config: ModelConfig) -> str:
        """By the config, else by a file of the first version, else by the ending of the name.

        Empty where Triton finds none, and for an ensemble.
        """
        if (named := backend_of(config)) or config.platform or config.default_model_filename:
            return named
        first = min(self._version_directories, key=lambda d: d.name, default=None)
        known = [backend for name, backend in FILES.items() if first and lexists(first / name)]
        return known[0] if known else self.model.partition(".")[2]

    def mentions(self, name: str) -> bool:
        sources = (path for d in self._version_directories for path in d.glob("*.py"))
        return any(name.encode() in (read_source(path) or b"") for path in sources)

    @property
    def _version_directories(self) -> list[Path]:
        return [self.directory / str(version) for version in self.versions]


def read_model(
    repository: Path, model: str, write_to: str = CONFIG_NAME, *, within_repository: bool = False
) -> ModelFiles:
    """Reads ``model``'s directory; changes nothing.

    Its config is ``write_to`` or, without that file, config.pbtxt: as with --model-config-name.
    ``within_repository``: no link is followed out of the repository, since others see what is read.

    Raises:
        EnvironmentNotReadyError: The repository or the config cannot be read.
        SpecError: There is no such model, or its config is not a file, or is not UTF-8 outside its
            comments.
    """
    directory = model_directory(repository, model)
    for path in dict.fromkeys((directory / write_to, directory / CONFIG_NAME)):
        if (data := read_config(path)) is not None:
            break
    if within_repository and leads_out(path, directory):
        text = f"{path} is a link to {realpath(path)}, which is not the repository's own"
        hint = "it is not read: put the file there, or let the model's directory be the link"
        raise SpecError(text, hint)
    try:
        text, encoding = decode(data or b"")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        raise SpecError(
            f"{path}:{line}:{column}: this is not ASCII, in a file that is not UTF-8",
            "save the file as UTF-8",
        ) from error
    sha256 = None if data is None else hashlib.sha256(data).hexdigest()
    numbers = versions(directory)
    return ModelFiles(model, directory, path, text, sha256, numbers, encoding, write_to)


def leads_out(path: Path, model: Path) -> bool:
    """A link to a file that is not the model's own: to any of this machine, a password's too."""
    try:
        return path.is_symlink() and not belongs_to_model(path, model, mounted=True)
    except OSError:  # a name that is too long, and names no file
        return False


def directory_of(config: Path) -> Path:
    """The model's directory, by the path of any of its configs; looks at no disk."""
    named = CONFIG_NAMES.fullmatch("/".join(config.parts[-2:]))
    return config.parent.parent if named else config.parent


def belongs_to_model(path: Path, model: Path, *, mounted: bool = False) -> bool:
    """Whether a path, its links followed, is a file of a model's directory or of its repository.

    What counts is the directory that ``model`` leads to. A hidden store (.git/annex, .dvc, ..data),
    which names files by their content, is nobody's own; ``mounted``: but Kubernetes' ..data is.
    """
    real, repository = Path(realpath(path)), Path(realpath(model.parent))
    if not any(real.is_relative_to(top) for top in (repository, Path(realpath(model)))):
        return False
    above = commonpath((real, repository))
    hidden = (part for part in real.relative_to(above).parts if part.startswith("."))
    return all(mounted and part.startswith("..") for part in hidden)


def read_config(path: Path) -> bytes | None:
    """The bytes of a config, through links; ``None`` when there is none.

    Raises:
        EnvironmentNotReadyError: It cannot be read.
        SpecError: There is something else than a file: Triton would not load the model, and
            reading a pipe would never end.
    """
    try:
        return read_regular(path)
    except FileNotFoundError:
        if not path.is_symlink():
            return None
        what = "it is a link to something that is not there"
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EINVAL):
            raise _unreadable(path, error) from error
        what = str(error.strerror).lower()
    raise SpecError(
        f"{path} is no config: {what}", "put a file there; remove it if the model is to have none"
    )


def read_source(path: Path, at_most: int = 1 << 20) -> bytes | None:
    """The beginning of a file of code; None where there is no regular file of that name.

    Raises:
        EnvironmentNotReadyError: It cannot be read.
    """
    try:
        return read_regular(path, at_most) if path.is_file() else None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"cannot read {path}: {error.strerror}", "make it readable for this user"
    )


def model_directory(repository: Path, model: str) -> Path:
    """The model's directory; its name is that of a directory in the repository, never a path.

    Raises:
        EnvironmentNotReadyError: The repository cannot be read.
        SpecError: There is no such model.
    """
    directory = repository / model
    with contextlib.suppress(OSError):  # listing the names says what is wrong
        if is_model_name(model) and directory.is_dir():
            return directory
    names = model_names(repository)
    text = f"there is no model {model!r} in {repository}"
    if is_one_model(repository):
        text = f"{text}, which is the directory of one model"
        raise SpecError(text, f"the repository is the one above: {repository.absolute().parent}")
    hint = meant_or_listed(model, names, "its models:") if names else "it has no models"
    raise SpecError(text, hint)


def is_one_model(directory: Path) -> bool:
    """Whether a directory that is to be a repository is that of one model: it has a config."""
    return is_there(directory / CONFIG_NAME) and not (directory / CONFIG_NAME).is_dir()


def is_model_name(name: str) -> bool:
    """Whether a directory of a repository may have this name, and be a model's."""
    plain = "/" not in name and "\0" not in name and not name.startswith(".")
    return plain and 0 < len(name.encode("utf-8", "surrogatepass")) <= _NAME_BYTES


def model_names(repository: Path, *, empty: bool = False) -> list[str]:
    """The directories of a repository, as Triton takes them for models; sorted.

    ``empty``: those with nothing in them instead, which it takes for models and cannot load.

    Raises:
        EnvironmentNotReadyError: It is no directory that can be read.
    """
    try:
        entries = sorted(e for e in repository.iterdir() if is_model_name(e.name) and e.is_dir())
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"cannot read the model repository {repository}: {error.strerror}",
            ("" if is_there(repository) else path_meant(repository))
            or "name the directory that holds one directory for each model",
        ) from error
    return [entry.name for entry in entries if _is_empty(entry) is empty]


def holds_models(repository: Path) -> bool:
    """Whether a directory has one with a config or a version in it."""
    models = (repository / name for name in model_names(repository))
    return any(lexists(model / CONFIG_NAME) or versions(model) for model in models)


def repositories_in(folder: Path) -> list[Path]:
    """The folder, or those below it to some depth, that hold models; none inside another."""
    repositories, level = list[Path](), [folder]
    for _ in range(_DEPTH):
        inner = list[Path]()
        for place in level[:_FOLDERS]:
            with contextlib.suppress(EnvironmentNotReadyError):  # one that may not be read
                if holds_models(place):
                    repositories.append(place)
                else:
                    inner += [place / name for name in model_names(place)]
        level = inner
    return repositories


def unread_configs(folder: Path) -> list[str]:
    """Files of a folder that seem to be configs, under names that Triton does not read."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    alike = get_close_matches(CONFIG_NAME, names, cutoff=0.9)
    return [n for n in names if n != CONFIG_NAME and (".pbtxt" in n.lower() or n in alike)]


def _is_empty(folder: Path) -> bool:
    try:
        return all(entry.name.startswith(".") for entry in folder.iterdir())
    except OSError:
        return folder.name == "lost+found"  # only root may look into it


def versions(directory: Path) -> tuple[int, ...]:
    """Triton's version directories: names that are positive numbers without a leading zero.

    Raises:
        EnvironmentNotReadyError: The model's directory cannot be read.
    """
    try:
        names = [entry.name for entry in directory.iterdir() if entry.is_dir()]
    except OSError as error:
        raise _unreadable(directory, error) from error
    return tuple(sorted(int(n) for n in names if n.isascii() and n.isdecimal() and n[0] != "0"))


def passed_over(directory: Path) -> str:
    """The end of a sentence about versions, where one has a name that Triton does not take."""
    names = sorted(entry.name for entry in directory.glob("0*/") if entry.name.isdecimal())
    return f": Triton passes over {names[0]}, since it begins with 0" if names else ""


def weights_bytes(directory: Path, config: ModelConfig, there: Sequence[int]) -> int:
    """Size of the files of a model's largest served version, of the versions ``there``."""
    places = [directory / str(version) for version in served_versions(config, there)]
    sizes = (sum(f.stat().st_size for f in p.rglob("*") if f.is_file()) for p in places)
    return max(sizes, default=0)


def served_versions(config: ModelConfig, there: Sequence[int]) -> tuple[int, ...]:
    """Those of a model's versions that its version_policy serves: by default the latest."""
    policy = config.version_policy
    if policy.HasField("all"):
        return tuple(there)
    if policy.HasField("specific"):
        return tuple(version for version in there if version in policy.specific.versions)
    count = policy.latest.num_versions if policy.HasField("latest") else 1
    return tuple(sorted(there, reverse=True)[:count][::-1])
