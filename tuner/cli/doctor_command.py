"""`tune doctor`: whether this machine is ready."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import click

from tuner.cli.options import output_format
from tuner.errors import EnvironmentNotReadyError


@click.command("doctor")
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Directory runs would be stored in.",
)
@output_format
def command(spec: Path | None, output: Path, output_format: str) -> int:
    """Check programs by running them, ports, GPU, permissions; say how to mend each.

    With SPEC, what that spec needs; else what the local mode needs. Exit code 4 when something
    is missing.
    """
    from tuner.spec.load import load_spec
    from tuner.triton.doctor import run_checks

    wanted = None if spec is None else load_spec(spec).spec
    checks = run_checks(
        dict(os.environ),
        server=None if wanted is None else wanted.server,
        perf_analyzer=None if wanted is None else wanted.workload.perf_analyzer,
        repository=None if wanted is None else wanted.repository,
        results=output,
    )
    if output_format == "json":
        click.echo(json.dumps([asdict(c) for c in checks], indent=2))
    else:
        for check in checks:
            mark = click.style("ok  ", fg="green") if check.ok else click.style("MEND", fg="red")
            click.echo(f"{mark}  {check.label}: {check.found}")
            if check.mend:
                click.echo(f"        {check.mend}")
    return 0 if all(c.ok for c in checks) else EnvironmentNotReadyError.exit_code
