"""What is wrong with a model's directory: its config's name, its versions, the files in them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from tuner.lint.named_files import named_files
from tuner.lint.rules import LintFinding, Severity, error_at
from tuner.modelconfig.backends import FILES, is_ensemble, model_file_names
from tuner.modelconfig.files import (
    ModelFiles,
    passed_over,
    repositories_in,
    served_versions,
    unread_configs,
)
from tuner.modelconfig.known_backends import BACKENDS
from tuner.modelconfig.schema import ModelConfig
from tuner.regular import is_there
from tuner.spec.mistakes import listed
from tuner.spec.paths import CONFIG_NAME


def layout_findings(files: ModelFiles, config: ModelConfig) -> Iterator[LintFinding]:
    """Errors of the directory; Triton reports most of them only in its log."""
    if config.name and config.name != files.model:
        text = f"the config's name is {config.name!r}, its directory is {files.model!r}"
        hint = "give both the same name, or leave the name out"
        yield error_at(files, "name", "name-mismatch", text, hint)
    unread = [*_unread_configs(files)]
    beside = [name for name in FILES if is_there(files.directory / name)]
    if not (files.sha256 or files.versions or unread or beside):
        yield _no_model(files.directory)
        return
    yield from unread
    if not files.versions:
        hint = f"make {files.directory / '1'}" + (", empty" if is_ensemble(config) else "")
        if beside:
            hint = f"move {listed(beside, ' and ')} into {files.directory / '1'}"
        text = f"there is no version directory{passed_over(files.directory)}"
        yield LintFinding(files.directory, 1, None, Severity.ERROR, "version-directory", text, hint)
    for version in config.version_policy.specific.versions:
        if files.versions and version not in files.versions:
            text = f"version_policy asks for version {version}, which has no directory"
            yield error_at(files, "version_policy", "version-policy", text, "")
    if not is_ensemble(config):
        yield from _model_files(files, config)
    moved = config.model_repository_agents.agents  # they may bring the files
    if not (is_ensemble(config) or config.platform or files.backend(config) or moved or unread):
        text = "neither the config nor a model file says which backend loads this model"
        hint = "write backend: ... in config.pbtxt, or put the model's file into a version"
        yield error_at(files, "default_model_filename", "no-backend", text, hint)
    yield from named_files(files, config)


def _no_model(folder: Path) -> LintFinding:
    text = f"this is no model: it has neither a {CONFIG_NAME} nor a version{passed_over(folder)}"
    hint = "Triton takes each folder for a model: move it out of the repository"
    if inner := repositories_in(folder):
        text = f"this is no model: models lie in {listed(inner)}"
        command = shlex.join(["tune", "lint", str(inner[0])])
        hint = f"move it out of this repository; {command} checks what it holds"
    return LintFinding(folder, 1, None, Severity.ERROR, "no-backend", text, hint)


def _unread_configs(files: ModelFiles) -> Iterator[LintFinding]:
    """Configs of other names and in other places, where there is no config.pbtxt."""
    if files.sha256:
        return
    beside = unread_configs(files.directory)
    misspelt = get_close_matches(CONFIG_NAME, beside, cutoff=0.9)
    inside = [f"{version}/{CONFIG_NAME}" for version in files.versions]
    inside = [name for name in inside if is_there(files.directory / name)]
    wrong = dict.fromkeys(beside, f"make {CONFIG_NAME} of it: fill it in where it is a template")
    wrong |= dict.fromkeys(misspelt, f"rename it to {CONFIG_NAME}")
    wrong |= dict.fromkeys(inside, f"move it to {files.directory}")
    for name, hint in wrong.items():
        place, text = files.directory / name, f"Triton does not read {name}"
        yield LintFinding(place, 1, None, Severity.ERROR, "config-file", text, hint)


def _model_files(files: ModelFiles, config: ModelConfig) -> Iterator[LintFinding]:
    name = files.backend(config)
    wanted = model_file_names(config, name)
    if not wanted or config.cc_model_filenames:
        return
    served = served_versions(config, files.versions)
    for version in files.versions:
        directory = files.directory / str(version)
        if there := [file for file in wanted if is_there(directory / file)]:
            yield from _beside(directory, there, name) if version in served else ()
            continue
        text = f"{name} finds no {' or '.join(wanted)} in version {version}"
        severity, hint = Severity.ERROR, _hint(directory, name, wanted)
        if version not in served:
            severity, text = Severity.NOTE, f"{text}, which version_policy does not serve"
        yield LintFinding(directory, 1, None, severity, "model-file", text, hint)


def _beside(directory: Path, there: Sequence[str], backend: str) -> Iterator[LintFinding]:
    """A second file that the backend reads beside a model's."""
    for file in map(Path, there):
        ending = BACKENDS[backend].beside.get(file.suffix)
        if ending and not is_there(directory / file.with_suffix(ending)):
            text = f"{backend} finds no {file.with_suffix(ending)} beside {file}: no weights"
            hint = _hint(directory, backend)
            yield LintFinding(directory, 1, None, Severity.ERROR, "model-file", text, hint)


def _hint(directory: Path, backend: str, wanted: Collection[str] = ()) -> str:
    present = sorted(entry.name for entry in directory.glob("*"))  # none where it may not be read
    broken = [name for name in present if not is_there(directory / name)]
    if broken:
        return f"{directory / broken[0]} is a link to nothing, or a pipe"
    ending, hint = BACKENDS[backend].unreadable
    if ending and any(name.endswith(ending) for name in present):
        return hint
    alike = [(name, file) for name in present for file in wanted if _ending(name) == _ending(file)]
    if len(alike) == 1:
        name, file = alike[0]
        return f'rename {name} to {file}, or write default_model_filename: "{name}"'
    for name in present:
        if FILES.get(name, backend) != backend:
            return f"it holds {name}, which is for backend: {FILES[name]}"
    return f"it holds {listed(present)}" if present else "it is empty"


def _ending(name: str) -> str:
    return Path(name).suffix
