"""`tune doctor`: whether this machine is ready."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tuner.cli import options
from tuner.cli.storage import children_environment
from tuner.cli.terminal import say, say_json
from tuner.errors import EnvironmentNotReadyError


@click.command("doctor")
@options.optional_spec_argument
@click.option(
    "--output",
    type=options.DIRECTORY,
    default=Path("results"),
    show_default=True,
    help="Directory that runs are stored in.",
)
@options.output_format
def command(spec: Path | None, output: Path, output_format: str) -> int:
    """Check programs (by running them), ports, GPU and permissions; say how to fix each problem.

    With SPEC, checks what that spec needs; otherwise, what the local mode needs. Exit code 4 if
    something is missing. How well measurements repeat here is told by the report of each run.
    """
    from tuner.spec.load import load_spec
    from tuner.steps.job import models_of
    from tuner.triton.doctor import Check, run_checks
    from tuner.writeback.rollback import half_written

    wanted = None if spec is None else load_spec(spec).spec
    checks = run_checks(
        children_environment(),
        server=None if wanted is None else wanted.server,
        models=lambda: () if wanted is None else models_of(wanted).models.values(),
        perf_analyzer=None if wanted is None else wanted.workload.perf_analyzer,
        repository=None if wanted is None else wanted.repository,
        results=output,
    )
    for half in (half_written(wanted.repository) if wanted else {}).values():
        checks.append(Check("write", "whole configs", False, half.message, half.hint))
    if output_format == "json":
        say_json([asdict(c) for c in checks])
    else:
        for check in checks:
            mark = click.style("ok  ", fg="green") if check.ok else click.style("FIX ", fg="red")
            say(f"{mark}  {check.label}: {check.found}")
            if check.mend:
                say(f"        {check.mend}")
    return 0 if all(c.ok for c in checks) else EnvironmentNotReadyError.exit_code
