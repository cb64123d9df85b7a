"""`tune init`: drafts a spec for a model."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tuner.cli.options import repository_option
from tuner.errors import SpecError


@click.command("init")
@click.argument("model")
@repository_option
@click.option(
    "--slo", default="p99_latency <= 100ms", show_default=True, help="The SLO to start with."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; default MODEL.yaml, - for stdout.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
def command(model: str, repository: Path, slo: str, output: Path | None, force: bool) -> None:
    """Draft a commented spec for MODEL, with bounds from the model and this machine."""
    from tuner.modelconfig.files import read_model
    from tuner.modelconfig.message import parse
    from tuner.space.draft import Machine, draft_spec
    from tuner.triton.host import read_host

    target = output or Path(f"{model}.yaml")
    to_stdout = str(target) == "-"
    if target.exists() and not force and not to_stdout:
        raise SpecError(f"{target} is there already", "--force replaces it, --output names another")
    files = read_model(repository, model)
    host = read_host(dict(os.environ))
    directory = Path.cwd() if to_stdout else target.absolute().parent
    memories = [gpu.memory_bytes for gpu in host.gpus if gpu.memory_bytes is not None]
    text = draft_spec(
        model,
        parse(files.text, str(files.path)),
        Machine(host.cores, len(host.gpus), min(memories, default=None)),
        os.path.relpath(repository, directory),
        slo,
    )
    if to_stdout:
        click.echo(text, nl=False)
        return
    target.write_text(text, encoding="utf-8")
    click.echo(f"drafted {target}")
    click.echo(f"next:  tune plan {target}   then   tune run {target}", err=True)
