"""Makes the text of a draft for models of a repository: for `tune init` and `tune run MODEL`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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

#: The SLO of a draft, where nobody says one.
EXAMPLE = "p99_latency <= 100ms"
#: Where no image of NVIDIA's has the backends that are lacking.
_ELSEWHERE = (
    "no image of NVIDIA's has all that is needed: name a directory that has it, args: "
    "[--backend-directory=DIR], or an image of your own, mode: docker, image: IMAGE"
)


def drafted_spec(model: Path, slos: Sequence[str], directory: Path) -> str:
    """The text of a spec in ``directory`` for a model: its name, or a path of its directory.

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
    """The text of a spec in ``directory``; ``parts``: the models, where they were read already.

    ``slos``: those of the command line.
    """
    from tuner.space.draft import draft_spec
    from tuner.space.draft_slos import joined, on_a_latency

    given = None
    repository = _repository(repository, profile, model)
    parts = _read_parts(repository, model, write_to, profile, parts)
    if profile is not None:
        from tuner.model_analyzer.carry import carried

        latency = next(iter(on_a_latency(slos)), EXAMPLE)
        given = carried(profile, parts[model].config, directory, latency)
        given = replace(given, slos=joined(slos, given.slos))
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
    """The text of a spec with a stream for each of the models that are profiled together."""
    from tuner.model_analyzer.together import streams_of
    from tuner.space.draft_streams import draft_streams

    repository = _repository(repository, profiles[0], profiles[0].model)
    models = [_read_parts(repository, p.model, write_to, p) for p in profiles]
    streams = streams_of(profiles, models, directory, slos, EXAMPLE)
    more = _server_of(server, repository, {n for parts in models for n in parts}, write_to)
    where, machine = os.path.relpath(repository, directory), _machine()
    command = f"tune init --from-model-analyzer {profiles[0].path}"
    return draft_streams(streams, machine, where, command, write_to=write_to, **more)


def _read_parts(
    repository: Path,
    model: str,
    write_to: str,
    profile: Profile | None = None,
    parts: Mapping[str, DraftedModel] | None = None,
) -> Mapping[str, DraftedModel]:
    """The model by its name, then those that are served with it; says what lint finds of it."""
    from tuner.lint.repository import errors_of
    from tuner.modelconfig.files import model_names, read_model
    from tuner.modelconfig.message import parse
    from tuner.modelconfig.rules import violations
    from tuner.modelconfig.tree import field_place
    from tuner.run.models import parts_of
    from tuner.space.build import broken_config

    if plain(model) != model:
        text = f"{model!r} is no name for a model: it has characters that are not shown"
        raise SpecError(text, "rename its directory, with letters, digits, - and _")
    files = read_model(repository, model, write_to)
    config = parse(files.text, str(files.path))
    if refused := violations(config, completes=files.completes(config)):
        path = str(files.path)
        raise broken_config(
            refused, lambda violation: field_place(path, files.text, violation.path)
        )
    if not (files.sha256 or files.backend(config)):
        text = f"{files.directory} holds neither a config.pbtxt nor a model"
        raise SpecError(text, "put the model's file into a version directory, such as 1")
    for finding in errors_of(repository, model, write_to):
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
    """The server's section, with a remark where it is not the one that was asked for."""
    from tuner.modelconfig.files import read_model

    if server:
        return {"server": server}
    return _needed_server(read_model(repository, name, write_to) for name in models)


def _needed_server(models: Iterable[ModelFiles]) -> dict[str, Any]:
    """A container, and why, where this machine's server lacks a backend; else what a draft has."""
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
