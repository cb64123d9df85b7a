"""Makes the text of a draft for models of a repository: for `tune init` and `tune run MODEL`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli import options
from tuner.cli.terminal import say
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.plain import plain
from tuner.spec.paths import CONFIG_NAME

if TYPE_CHECKING:
    from tuner.model_analyzer.yaml_file import Profile
    from tuner.modelconfig.files import ModelFiles
    from tuner.space.draft_instances import Machine
    from tuner.space.draft_space import DraftedModel

#: The SLO of a draft if neither the user nor a file states one.
EXAMPLE = "p99_latency <= 100ms"
#: The remark if none of NVIDIA's images has all backends of the models.
_ELSEWHERE = (
    "no NVIDIA image has all of these backends: name a directory that has them, args: "
    "[--backend-directory=DIR], or your own image, mode: docker, image: IMAGE"
)


def drafted_spec(model: Path, slos: Sequence[str], directory: Path) -> str:
    """Drafts a spec for one model.

    Args:
        model: Name of the model in the default repository, or path of its directory.
        directory: Directory that the spec is written to; paths in the spec are relative to it.

    Raises:
        SpecError: There is nothing to tune, or an SLO is wrong.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    repository = None if model.name == str(model) else model.parent
    given = tuple(dict.fromkeys(slos))
    server: dict[str, str] = {}
    return drafted(
        model.name, repository, directory, None, slos=given, server=server, write_to=CONFIG_NAME
    )


def drafted(
    model: str,
    repository: Path | None,
    directory: Path,
    profile: Profile | None,
    parts: Mapping[str, DraftedModel] | None = None,
    *,
    slos: tuple[str, ...],
    server: dict[str, str],
    write_to: str,
) -> str:
    """Drafts a spec for a model and the models that are served with it.

    Args:
        directory: Directory that the spec is written to; paths in the spec are relative to it.
        profile: The model's settings in a file of Model Analyzer.
        parts: The model and those served with it, by name, if they have been read already.
        slos: SLOs of the command line.
        server: The section of the spec; empty: the draft chooses.
    """
    from tuner.space.draft import draft_spec

    given = None
    repository = _repository(repository, profile, model)
    parts = _read_parts(repository, model, write_to, profile, parts)
    if profile is not None:
        from tuner.model_analyzer.carry import carried
        from tuner.space.draft_space import are_for_sequences

        sequences = are_for_sequences(parts)
        given = carried(profile, parts, directory, slos, sequences=sequences)
    more = _server_of(server, repository, parts, write_to)
    where, machine = os.path.relpath(repository, directory), _machine()
    return draft_spec(parts, machine, where, slos, given, write_to=write_to, **more)


def drafted_together(
    profiles: Sequence[Profile],
    repository: Path | None,
    directory: Path,
    *,
    slos: tuple[str, ...],
    server: dict[str, str],
    write_to: str,
) -> str:
    """Drafts a spec with one stream for each of the models that are profiled together."""
    from tuner.model_analyzer.together import streams_of
    from tuner.space.draft_streams import draft_streams

    repository = _repository(repository, profiles[0], profiles[0].model)
    models = [_read_parts(repository, p.model, write_to, p) for p in profiles]
    streams = streams_of(profiles, models, directory, slos)
    more = _server_of(server, repository, {n for parts in models for n in parts}, write_to)
    where, machine = os.path.relpath(repository, directory), _machine()
    command = shlex.join(["tune", "init", "--from-model-analyzer", str(profiles[0].path)])
    return draft_streams(streams, machine, where, command, write_to=write_to, **more)


def _read_parts(
    repository: Path,
    model: str,
    write_to: str,
    profile: Profile | None = None,
    parts: Mapping[str, DraftedModel] | None = None,
) -> Mapping[str, DraftedModel]:
    """The model and those served with it, by name; prints what lint says against the model."""
    from tuner.lint.repository import faults_of
    from tuner.modelconfig.files import model_names, passed_over, read_model, repositories_in
    from tuner.modelconfig.message import parse
    from tuner.modelconfig.rules import violations
    from tuner.modelconfig.tree import field_place
    from tuner.run.models import parts_of
    from tuner.space.build import broken_config

    if plain(model) != model:
        text = f"{model!r} is not a valid model name: it has non-printable characters"
        raise SpecError(text, "rename its directory; use letters, digits, - and _")
    files = read_model(repository, model, write_to)
    config = parse(files.text, str(files.path))
    if refused := violations(config, completes=files.completes(config)):
        path = str(files.path)
        raise broken_config(
            refused, lambda violation: field_place(path, files.text, violation.path)
        )
    faults = faults_of(repository, model, write_to)
    if not (files.sha256 or files.backend(config)):
        text = f"{files.directory} holds neither a config.pbtxt nor a model"
        text += passed_over(files.directory)
        if inner := repositories_in(files.directory):
            command = shlex.join(["tune", "init", "MODEL", "--repository", str(inner[0])])
            raise SpecError(text, f"it holds models: {command}")
        hint = "put the model's file into a version directory, such as 1"
        if unread := [finding for finding in faults if finding.rule == "config-file"]:
            text += f": {unread[0].message}"
            hint = unread[0].hint
        raise SpecError(text, hint)
    for finding in faults:
        say(f"{finding.place}: {finding.message}", err=True)
    calls: tuple[str, ...] = ()
    if profile is not None:
        from tuner.model_analyzer.carry import called

        calls = called(profile, model_names(repository))
    return parts or parts_of(repository, model, write_to, calls)


def _repository(repository: Path | None, profile: Profile | None, model: str) -> Path:
    if profile is not None:
        from tuner.model_analyzer.carry import repository_of

        repository = repository or repository_of(profile)
    return repository or options.default_repository(f"init {shlex.quote(model)}")


def _server_of(
    server: dict[str, str], repository: Path, models: Iterable[str], write_to: str
) -> dict[str, Any]:
    """Arguments of `draft_spec`: the server's section, and a remark if the draft chose it."""
    from tuner.modelconfig.files import read_model

    if server:
        return {"server": server}
    return _needed_server(read_model(repository, name, write_to) for name in models)


def _needed_server(models: Iterable[ModelFiles]) -> dict[str, Any]:
    """A container, and why, if this machine's server lacks a backend; else the draft's default."""
    from tuner.server.binaries import tritonserver
    from tuner.triton.local import find_backends
    from tuner.triton.needs import backends_of, image_with

    needed = [*models]
    if not {*backends_of(needed)} - {"python"}:
        return {}
    try:
        with tritonserver(None, dict(os.environ)) as program:
            find_backends(needed, (), program.backend_directory)
    except EnvironmentNotReadyError as error:
        image = image_with(backends_of(needed))
        if image is None:
            return {"why": f"here: {error.message}; {_ELSEWHERE}"}
        return {"server": {"mode": "docker", "image": image}, "why": f"here: {error.message}"}
    return {}


def _machine() -> Machine:
    from tuner.run.models import read_machine

    return read_machine(dict(os.environ))
