"""The real file of a model's config, whether it may be written, and the record of a write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import EnvironmentNotReadyError, SpecError, TunerError
from tuner.modelconfig.edit import unified_diff
from tuner.modelconfig.encoding import decode
from tuner.modelconfig.files import (
    ModelFiles,
    belongs_to_model,
    directory_of,
    is_model_name,
    model_names,
    read_config,
    versions,
)
from tuner.spec.mistakes import listed
from tuner.spec.paths import CONFIG_NAME
from tuner.writeback.files import explained, sha256_or_none

if TYPE_CHECKING:
    from tuner.record.result_schema import WrittenFacts


@dataclass(frozen=True)
class Target:
    """The config of a model in a repository on this machine.

    Attributes:
        real: The file with links resolved: it is replaced, and has the backups next to it.
        notes: Sentences about links, for the user.
    """

    path: Path
    real: Path
    notes: tuple[str, ...]

    def read(self) -> bytes | None:
        """The content of the file; ``None`` if it does not exist.

        Raises:
            EnvironmentNotReadyError: The file cannot be read.
            SpecError: It is not a regular file.
        """
        return read_config(self.real)


def is_config_of(path: Path, model: str) -> bool:
    """Whether a path is that of a model's config in some repository; does not access the disk."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    directory = directory_of(path)
    named = path.name == CONFIG_NAME or directory != path.parent
    return named and directory.name == model and is_model_name(model) and "\0" not in str(path)


def target_of(path: Path, model: str, *, through_links: bool = False) -> Target:
    """The file to write for a model.

    Args:
        through_links: Accept a file outside the repository.

    Raises:
        EnvironmentNotReadyError: There is no such model directory, or the config is a link to
            a file that belongs neither to the model nor to the repository.
        SpecError: The path is not that of a config, or not a regular file.
    """
    if not is_config_of(path, model):
        raise SpecError(
            f"{path} is not a config of a model {model!r}; nothing was written",
            "only a model's config is written: was the run edited?",
        )
    with explained(path):
        return _looked_at(path, through_links=through_links)


def _looked_at(path: Path, *, through_links: bool) -> Target:
    directory = directory_of(path)
    if not directory.is_dir():
        raise EnvironmentNotReadyError(
            f"no model directory {directory}",
            "check `repository` and `model` in the spec; `tune apply --repository` names another",
        )
    if read_config(path) is None and not versions(directory):
        raise SpecError(
            f"{directory} has neither a config nor a version, so it is not a model",
            "check that the run's model repository is the one you mean",
        )
    repository = directory.parent.resolve()
    real = path.resolve()
    mounted = any(part.startswith("..") for part in real.parts)
    inside = belongs_to_model(path, directory) and not mounted
    if not inside and not through_links:
        leads = f"{path} leads to {real}, which is not the model's own file"
        links = "to write that file, use --through-links with `tune apply` or `tune rollback`"
        config_map = "change the ConfigMap; the patch is in the run's best/proposal.patch"
        raise EnvironmentNotReadyError(
            f"{leads} but mounted by Kubernetes" if mounted else leads,
            config_map if mounted else links,
        )
    return Target(path, real, tuple(_notes(path, real, repository, inside=inside)))


def write_notes(models: Iterable[ModelFiles]) -> tuple[str, ...]:
    """Notes for the user about the files that a winner will be written to."""
    paths = {m.model: m.directory / m.write_to for m in models}
    try:
        return tuple(note for m, path in paths.items() for note in target_of(path, m).notes)
    except TunerError as error:
        return (f"a winner will not be written: {error.message}; {error.hint}",)


def _notes(path: Path, real: Path, repository: Path, *, inside: bool) -> Iterator[str]:
    if path.name != CONFIG_NAME:
        yield f"a server reads {path} when started with --model-config-name={path.stem}"
    model = directory_of(path)
    if (home := model.resolve()) != repository / model.name:
        yield f"{model} is a link to {home}: {real} is written"
    if real != home / path.relative_to(model):
        yield f"{path} is a link to {real}{'' if inside else ', outside the repository'}"
    others = sorted(_linked(repository, real, path.relative_to(model)) - {model.name})
    if others:
        yield f"{real} is the config of {listed(others)} too"


def _linked(repository: Path, real: Path, config: Path) -> set[str]:
    """Models whose config is this file."""
    models: set[str] = set()
    with contextlib.suppress(TunerError):  # the repository may not be readable
        for name in model_names(repository):
            path = repository / name / config
            with contextlib.suppress(OSError, RuntimeError):  # a broken link
                if path.resolve() == real:
                    models.add(name)
    return models


@dataclass(frozen=True)
class WrittenFile:
    """The record of a write to one file.

    Attributes:
        path: Path of the config.
        real: The file with links resolved.
        backup: Copy of the replaced file; ``None`` if there was no file.
        changed: False if the file already had the wanted content.
        notes: Sentences for the user.
        diff: The change as a unified diff.
    """

    path: Path
    real: Path
    sha256_before: str | None
    sha256_after: str | None
    backup: Path | None
    changed: bool
    notes: tuple[str, ...]
    diff: str = ""

    @property
    def facts(self) -> WrittenFacts:
        """The part of the record that a result stores."""
        from tuner.record.result_schema import (
            WrittenFacts,
        )  # slow, and `tune lint` needs none of it

        return WrittenFacts(
            path=str(self.path),
            sha256_before=self.sha256_before,
            sha256_after=self.sha256_after,
            backup=None if self.backup is None else str(self.backup),
        )


@dataclass(frozen=True)
class Written:
    """The record of one write or one rollback.

    Attributes:
        files: Its files, changed ones first; without unchanged ones, unless all are unchanged.
        run_id: The run whose winner was written or taken back.
        notes: Sentences for the user.
    """

    files: tuple[WrittenFile, ...]
    run_id: str
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return any(file.changed for file in self.files)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Its notes and those of each file."""
        return (*self.notes, *(note for file in self.files for note in file.notes))

    @property
    def facts(self) -> WrittenFacts:
        """``written`` of a result: the first file, and the others below it."""
        first, *others = (file.facts for file in self.files)
        return first.model_copy(update={"others": tuple(others)})


def _text(content: bytes | None) -> str:
    try:
        return decode(content or b"")[0]
    except UnicodeDecodeError:  # an edit by hand, which --force replaces
        return (content or b"").decode(errors="replace")


def unchanged(target: Target, sha256: str | None) -> WrittenFile:
    return WrittenFile(target.path, target.real, sha256, sha256, None, changed=False, notes=())


def replaced(
    target: Target,
    before: bytes | None,
    after: bytes | None,
    backup: Path | None,
    notes: tuple[str, ...] = (),
) -> WrittenFile:
    """The record of a file that was replaced, or would be."""
    name = target.path.relative_to(directory_of(target.path).parent).as_posix()
    old, new = map(_text, (before, after))
    return WrittenFile(
        target.path,
        target.real,
        sha256_or_none(before),
        sha256_or_none(after),
        backup,
        changed=True,
        notes=(*target.notes, *notes),
        diff=unified_diff(old, new, name),
    )
