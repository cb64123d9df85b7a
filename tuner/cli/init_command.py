"""`tune init`: drafts a spec for a model."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import options
from tuner.cli.drafting import EXAMPLE, drafted, drafted_together
from tuner.cli.terminal import say, say_document, say_lines
from tuner.errors import EnvironmentNotReadyError, NothingToSearchError, SpecError, TunerError
from tuner.regular import is_there
from tuner.spec.mistakes import listed
from tuner.spec.paths import CONFIG_NAME, REPOSITORY

if TYPE_CHECKING:
    from tuner.model_analyzer.yaml_file import Profile
    from tuner.space.draft_space import DraftedModel


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
                "--all and --from-model-analyzer cannot be used together",
                "draft each model of that file: tune init MODEL --from-model-analyzer FILE",
            )
        where = Path(model) if model else repository or options.default_repository("init --all")
        server = _named_server(image, host)
        _draft_all(where, output or Path("specs"), {**wanted, "server": server}, force=force)
        return
    if image and host:
        text = "--image and --server cannot be used together: each defines the server"
        raise SpecError(text, "give one of them")
    if model and repository is None and Path(model).name != model:  # the path of its directory
        repository, model = Path(model).parent, Path(model).name
    if (
        model
        and not analyzer_file
        and (file := _analyzer_settings(repository or REPOSITORY, model))
    ):
        analyzer_file, repository = file, repository or REPOSITORY
        say(f"the draft takes over the settings of {file} that a spec supports", err=True)
    profiles = _profiles(analyzer_file, model)
    named = [profile.model for profile in profiles] or list(filter(None, [model]))
    if not named:
        raise SpecError("tune init needs a MODEL", "`tune models REPOSITORY` lists the models")
    name = "-".join(named)
    target = output or Path(f"{name}.yaml")
    to_stdout = str(target) == "-"
    if not to_stdout:
        _refuse_target(target, name, force=force)
    directory = Path.cwd() if to_stdout else target.absolute().parent
    server = _named_server(image, host)
    if len(profiles) > 1:
        text = drafted_together(profiles, repository, directory, server=server, **wanted)
    else:
        profile = next(iter(profiles), None)
        text = drafted(named[0], repository, directory, profile, server=server, **wanted)
    file_name = f"{name}.yaml" if to_stdout else target.name
    refused = _refusal(directory / file_name, text, brought=bool(profiles or slos))
    _print_left_out(profiles)
    _print_refusal(refused)
    if to_stdout:
        say_document(text)
        return
    _write(target, text)
    path_text = shlex.quote(str(target))
    say(f"next:  tune plan {path_text}   then   tune run {path_text}", err=True)


def _refusal(target: Path, text: str, *, brought: bool) -> TunerError | None:
    """Why `tune plan` refuses a draft with values of the user; None if the draft is valid.

    Args:
        brought: The draft has the user's SLOs or settings.

    Raises:
        SpecError: The draft is refused, though `tune init` chose all its values.
    """
    from tuner.checks.table import refuse_draft

    try:
        refuse_draft(target, text, dict(os.environ))
    except NothingToSearchError as error:
        return error
    except SpecError as error:
        if not brought:
            raise
        return error
    return None


def _print_refusal(refused: TunerError | None) -> None:
    if refused is not None:
        say_lines(f"tune plan refuses this draft; change it first:\n{refused.message}", err=True)


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


def _analyzer_settings(repository: Path, model: str) -> Path | None:
    """The settings for Model Analyzer that AITune publishes with a model, if there are any."""
    file = repository / model / "model_analyzer" / "config.yaml"
    return file if is_there(file) else None


def _profiles(file: Path | None, model: str | None) -> list[Profile]:
    from tuner.model_analyzer.yaml_file import read_profiles

    return [] if file is None else read_profiles(file, model)


def _write(target: Path, text: str) -> None:
    from tuner.writing import explained, write_text

    try:
        if target.is_file() or not target.exists():
            write_text(target, text)
        else:
            with explained(target):  # such as a pipe
                target.write_text(text, encoding="utf-8")
    except EnvironmentNotReadyError as error:
        error.hint = "free some space, or name another file with --output (- is stdout)"
        raise
    say(f"drafted {target}")


def _draft_all(
    repository: Path, directory: Path, wanted: Mapping[str, Any], *, force: bool
) -> None:
    """Drafts a spec for each model, parents before parts, so that each is in one spec only."""
    from tuner.checks.table import refuse_draft
    from tuner.modelconfig.files import model_names
    from tuner.run.models import parts_of

    parts: dict[str, Mapping[str, DraftedModel]] = {}
    for name in model_names(repository):
        parts[name] = {}
        with suppress(SpecError, EnvironmentNotReadyError):  # the draft below reports the error
            parts[name] = parts_of(repository, name, wanted["write_to"])
    inner = {part for name, group in parts.items() for part in group if part != name}
    left, owner = dict[str, str](), dict[str, str]()
    for name in sorted(parts, key=lambda n: (n in inner, n)):
        taken = [owner[m] for m in (name, *parts[name]) if m in owner]
        if name in owner:
            left[name] = f"it is searched in the spec of {owner[name]}"
        elif taken:
            left[name] = f"it shares models with {taken[0]}"
        else:
            try:
                text = drafted(name, repository, directory.absolute(), None, parts[name], **wanted)
                refuse_draft(directory / f"{name}.yaml", text, dict(os.environ))
            except (SpecError, NothingToSearchError, EnvironmentNotReadyError) as error:
                left[name] = " ".join(error.message.split())
                continue
            owner |= dict.fromkeys((name, *parts[name]), name)
            target = directory / f"{name}.yaml"
            if target.exists() and not force:
                say(f"kept the existing {target}: --force replaces it")
                continue
            _write(target, text)
            if file := _analyzer_settings(repository, name):
                command = f"tune init {shlex.quote(str(file.parents[1]))}"
                say(f"not taken over: the settings of {file}; to use them: {command}")
    for name, why in sorted(left.items()):
        say(f"left out {name}: {why}")
    if not owner:
        raise SpecError(f"no model of {repository} can be tuned", "`tune lint` lists the problems")
    say(f"next:  tune run {shlex.quote(f'{directory}/*.yaml')}", err=True)


def _named_server(image: str | None, host: str | None) -> dict[str, str]:
    """The server section of the spec, from --image or --server; empty if neither is given."""
    if image:
        return {"mode": "docker", "image": image}
    if host is None:
        return {}
    if ":" in host or "/" in host:
        raise SpecError(
            f"--server {host}: expected a host name without a port",
            "set the ports in the draft: server.http, server.grpc",
        )
    ports = {"http": 8000, "grpc": 8001, "metrics": 8002}
    return {"mode": "remote", **{name: f"{host}:{port}" for name, port in ports.items()}}


def _print_left_out(profiles: Sequence[Profile]) -> None:
    """Prints the settings and models of the file that the draft leaves out, on stderr."""
    left = dict.fromkeys(line for profile in profiles for line in profile.left)
    if left:
        say(f"not carried over from {profiles[0].path}:", err=True)
    for line in left:
        say(f"  {line}", err=True)
    if others := [name for profile in profiles for name in profile.others]:
        say(f"other models of the file, which need separate specs: {listed(others)}", err=True)
