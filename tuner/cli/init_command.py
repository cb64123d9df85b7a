"""`tune init`: drafts a spec for a model."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.terminal import say, say_document
from tuner.errors import EnvironmentNotReadyError, SpecError
from tuner.plain import plain
from tuner.regular import is_there
from tuner.spec.mistakes import listed
from tuner.spec.paths import CONFIG_NAME, REPOSITORY

if TYPE_CHECKING:
    from tuner.model_analyzer.yaml_file import Profile
    from tuner.modelconfig.files import ModelFiles
    from tuner.space.draft_space import DraftedModel

#: The SLO of a draft, where nobody says one.
EXAMPLE = "p99_latency <= 100ms"
#: Where no image of NVIDIA's has the backends that are lacking.
_ELSEWHERE = (
    "no image of NVIDIA's has all that is needed: name a directory that has it, args: "
    "[--backend-directory=DIR], or an image of your own, mode: docker, image: IMAGE"
)


@click.command("init")
@click.argument("model", required=False, shell_complete=options.complete_model)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Draft a spec for each model of the repository MODEL. A model that is searched with an "
    "ensemble, or with a model that calls it, gets no spec of its own.",
)
@click.option(
    "--from-model-analyzer",
    "analyzer_file",
    type=options.EXISTING_FILE,
    help="Take settings from a YAML file of NVIDIA's Model Analyzer; MODEL is optional then.  "
    "[default: MODEL's model_analyzer/config.yaml, which NVIDIA's AITune writes, if it exists]",
)
@options.repository_option(
    f"Model repository that holds MODEL; by default the YAML's, or {REPOSITORY}."
)
@click.option(
    "--slo",
    "slos",
    multiple=True,
    help="An SLO; repeat for several. At least one must bound a latency.  [default: the YAML's, "
    f"or {EXAMPLE}; p99_first_response <= 200ms of a decoupled model]",
)
@click.option(
    "--image", help="Start the server as a container of this image, such as NVIDIA's tritonserver."
)
@click.option("--server", "host", help="Use the server that runs on this host.")
@click.option(
    "--write-to",
    default=CONFIG_NAME,
    show_default=True,
    help="The config to tune, in each model's directory; or configs/NAME.pbtxt.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="File to write, - for stdout; by default MODEL.yaml. With --all: directory, by default "
    "specs.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def command(
    model: str | None,
    every: bool,
    analyzer_file: Path | None,
    repository: Path | None,
    slos: tuple[str, ...],
    image: str | None,
    host: str | None,
    write_to: str,
    output: Path | None,
    force: bool,
) -> None:
    """Draft a commented spec for MODEL, with bounds from the model and this machine."""
    _refuse_no_config(write_to)
    wanted: dict[str, Any] = {"slos": tuple(dict.fromkeys(slos)), "write_to": write_to}
    if every:
        if analyzer_file is not None:
            raise SpecError(
                "--all and --from-model-analyzer exclude each other",
                "draft each model of that file: tune init MODEL --from-model-analyzer FILE",
            )
        where = Path(model) if model else repository or options.default_repository("init --all")
        server = _named_server(image, host)
        _draft_all(where, output or Path("specs"), {**wanted, "server": server}, force=force)
        return
    if image and host:
        text = "--image and --server each say where the server comes from"
        raise SpecError(text, "give one of them")
    if model and repository is None and Path(model).name != model:  # a path of its directory
        repository, model = Path(model).parent, Path(model).name
    if model and not analyzer_file and (found := _beside(repository or REPOSITORY, model)):
        analyzer_file, repository = found, repository or REPOSITORY
        say(f"found {found}: the draft takes over what a spec can say of it", err=True)
    profile = _profile(analyzer_file, model)
    model = profile.model if profile else model
    if model is None:
        raise SpecError("tune init needs a MODEL", "`tune models REPOSITORY` lists the models")
    target = output or Path(f"{model}.yaml")
    to_stdout = str(target) == "-"
    if not to_stdout:
        _refuse_target(target, model, force=force)
    directory = Path.cwd() if to_stdout else target.absolute().parent
    server = _named_server(image, host)
    text = _drafted(model, repository, directory, profile, server=server, **wanted)
    refused = _refusal(directory / target.name, text, brought=profile is not None or bool(slos))
    if profile is not None:
        _tell(profile)
    _tell_refused(refused)
    if to_stdout:
        say_document(text)
        return
    _write(target, text)
    name = shlex.quote(str(target))
    say(f"next:  tune plan {name}   then   tune run {name}", err=True)


def _refusal(target: Path, text: str, *, brought: bool) -> SpecError | None:
    """Why `tune plan` refuses a draft that takes over what the user brings; None where it does not.

    Raises:
        SpecError: It would refuse the draft, of which all is of ours.
    """
    from tuner.checks.table import refuse_draft

    try:
        refuse_draft(target, text, dict(os.environ))
    except SpecError as error:
        if not brought:
            raise
        return error
    return None


def _tell_refused(refused: SpecError | None) -> None:
    if refused is not None:
        say(f"tune plan refuses this draft until it is changed:\n{refused.message}", err=True)


def _refuse_target(target: Path, model: str, *, force: bool) -> None:
    if target.is_dir():
        raise SpecError(f"--output {target} is a directory", f"name a file: {target / model}.yaml")
    if target.exists() and not force:
        raise SpecError(f"{target} already exists", "--force replaces it, --output names another")


def _refuse_no_config(write_to: str) -> None:
    from tuner.spec.fields import config_of_a_model

    try:
        config_of_a_model(write_to)
    except ValueError as error:
        raise SpecError(f"--write-to {write_to}: {error}") from error


def _beside(repository: Path, model: str) -> Path | None:
    """The settings for Model Analyzer that AITune publishes with a model."""
    file = repository / model / "model_analyzer" / "config.yaml"
    return file if is_there(file) else None


def _profile(file: Path | None, model: str | None) -> Profile | None:
    from tuner.model_analyzer.yaml_file import read_profile

    return None if file is None else read_profile(file, model)


def _write(target: Path, text: str) -> None:
    from tuner.writing import explained, write_text

    try:
        if target.is_file() or not target.exists():
            write_text(target, text)
        else:
            with explained(target):  # such as a pipe
                target.write_text(text, encoding="utf-8")
    except EnvironmentNotReadyError as error:
        error.hint = "free some space, or name another file with --output, - is stdout"
        raise
    say(f"drafted {target}")


def _draft_all(
    repository: Path, directory: Path, wanted: Mapping[str, Any], *, force: bool
) -> None:
    """A spec for each model, parents before their parts, so that none is searched by two."""
    from tuner.checks.table import refuse_draft
    from tuner.modelconfig.files import model_names
    from tuner.run.models import parts_of

    parts: dict[str, Mapping[str, DraftedModel]] = {}
    for name in model_names(repository):
        parts[name] = {}
        with suppress(SpecError, EnvironmentNotReadyError):  # drafting it says what is wrong
            parts[name] = parts_of(repository, name, wanted["write_to"])
    inner = {part for name, found in parts.items() for part in found if part != name}
    left, owner = dict[str, str](), dict[str, str]()
    for name in sorted(parts, key=lambda n: (n in inner, n)):
        taken = [owner[m] for m in (name, *parts[name]) if m in owner]
        if name in owner:
            left[name] = f"it is searched with {owner[name]}"
        elif taken:
            left[name] = f"it shares models with {taken[0]}"
        else:
            try:
                text = _drafted(name, repository, directory.absolute(), None, parts[name], **wanted)
                refuse_draft(directory / f"{name}.yaml", text, dict(os.environ))
            except (SpecError, EnvironmentNotReadyError) as error:
                left[name] = " ".join(error.message.split())
                continue
            owner |= dict.fromkeys((name, *parts[name]), name)
            target = directory / f"{name}.yaml"
            if target.exists() and not force:
                say(f"kept {target}, which exists: --force replaces it")
                continue
            _write(target, text)
            if file := _beside(repository, name):
                say(f"{file} is not taken over: tune init {shlex.quote(str(file.parents[1]))} does")
    for name, why in sorted(left.items()):
        say(f"left out {name}: {why}")
    if not owner:
        raise SpecError(f"no model of {repository} can be tuned", "tune lint finds what is wrong")
    say(f"next:  tune run {shlex.quote(f'{directory}/*.yaml')}", err=True)


def _named_server(image: str | None, host: str | None) -> dict[str, str]:
    """The spec's section, by the options; empty where neither is given."""
    if image:
        return {"mode": "docker", "image": image}
    if host is None:
        return {}
    if ":" in host or "/" in host:
        raise SpecError(
            f"--server {host}: expected the name of a host, without a port",
            "set the ports in the draft: server.http, server.grpc",
        )
    ports = {"http": 8000, "grpc": 8001, "metrics": 8002}
    return {"mode": "remote", **{name: f"{host}:{port}" for name, port in ports.items()}}


def _needed_server(models: Iterable[ModelFiles]) -> dict[str, Any]:
    """A container, and why, where this machine's server lacks a backend; else what a draft has."""
    from tuner.server.binaries import tritonserver
    from tuner.triton.local import find_backends
    from tuner.triton.needs import backends_of, image_with

    needed = [*models]
    if not {*backends_of(needed)} - {"python"}:
        return {}
    try:
        with tritonserver(None, dict(os.environ)) as found:
            find_backends(needed, (), found.backend_directory)
    except EnvironmentNotReadyError as error:
        image = image_with(backends_of(needed))
        if image is None:
            return {"why": f"here: {error.message}; {_ELSEWHERE}"}
        return {"server": {"mode": "docker", "image": image}, "why": f"here: {error.message}"}
    return {}


def _drafted(
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
    from tuner.lint.repository import errors_of
    from tuner.modelconfig.files import model_names, read_model
    from tuner.modelconfig.message import parse
    from tuner.modelconfig.rules import violations
    from tuner.modelconfig.tree import field_place
    from tuner.run.models import parts_of, read_machine
    from tuner.space.build import broken_config
    from tuner.space.draft import draft_spec
    from tuner.space.draft_slos import on_a_latency

    given = None
    if profile is not None:
        from tuner.model_analyzer.carry import called, carried, repository_of

        repository = repository or repository_of(profile)
    repository = repository or options.default_repository(f"init {shlex.quote(model)}")
    if plain(model) != model:
        text = f"{model!r} is no name for a model: it has characters that are not shown"
        raise SpecError(text, "rename its directory, with letters, digits, - and _")
    files = read_model(repository, model, write_to)
    config = parse(files.text, str(files.path))
    if refused := violations(config, completes=files.completes(config)):
        path = str(files.path)
        raise broken_config(refused, lambda found: field_place(path, files.text, found.path))
    if not (files.sha256 or files.backend(config)):
        text = f"{files.directory} holds neither a config.pbtxt nor a model"
        raise SpecError(text, "put the model's file into a version directory, such as 1")
    for finding in errors_of(repository, model, write_to):
        say(f"{finding.place}: {finding.message}", err=True)
    calls = called(profile, model_names(repository)) if profile is not None else ()
    parts = parts or parts_of(repository, model, write_to, calls)
    if profile is not None:
        latency = next(iter(on_a_latency(slos)), EXAMPLE)
        given = carried(profile, parts[model].config, directory, latency)
        given = replace(given, slos=_joined(slos, given.slos))
    more: dict[str, Any] = {"server": server} if server else {}
    if not server:
        more = _needed_server(read_model(repository, name, write_to) for name in parts)
    where = os.path.relpath(repository, directory)
    machine = read_machine(dict(os.environ))
    return draft_spec(parts, machine, where, slos, given, write_to=write_to, **more)


def drafted_spec(model: Path, slos: Sequence[str], directory: Path) -> str:
    """The text of a spec in ``directory`` for a model: its name, or a path of its directory.

    Raises:
        SpecError: There is nothing to tune, or an SLO is wrong.
        EnvironmentNotReadyError: There is no such repository or model.
    """
    repository = None if model.name == str(model) else model.parent
    own = tuple(dict.fromkeys(slos))
    server: dict[str, str] = {}
    return _drafted(
        model.name, repository, directory, None, slos=own, server=server, write_to=CONFIG_NAME
    )


def _joined(own: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """The user's own SLOs, then a file's on other metrics."""
    metrics = tuple(slo.split("<")[0].split(">")[0].strip() for slo in own)
    return (*own, *(slo for slo in theirs if not slo.startswith(metrics)))


def _tell(profile: Profile) -> None:
    """Prints on stderr what the draft leaves out of the file."""
    if profile.left:
        say(f"not carried over from {profile.path}:", err=True)
    for left in profile.left:
        say(f"  {left}", err=True)
    if profile.others:
        names = listed(profile.others)
        say(f"other models of the file, each needs a spec of its own: {names}", err=True)
