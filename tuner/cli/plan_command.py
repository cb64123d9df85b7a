"""`tune plan`: what a run would do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from tuner.cli.options import output_format, spec_argument


@click.command("plan")
@spec_argument
@click.option(
    "--candidates", type=click.IntRange(min=0), default=3, show_default=True, help="Diffs to show."
)
@output_format
def command(spec: Path, candidates: int, output_format: str) -> None:
    """Show the effective spec, the space, the first candidates, the command lines, the time.

    Starts no server and puts no load on anything.
    """
    from tuner.steps.planning import drawn_plan

    plan = drawn_plan(spec, dict(os.environ), candidates)
    if output_format == "json":
        click.echo(json.dumps(plan.to_json(), indent=2))
        return
    click.echo(plan.effective_spec.rstrip())
    click.echo(f"\nspace     {plan.space_text}")
    click.echo(f"time      {plan.estimate.text}")
    for note in plan.notes:
        click.echo(f"note      {note}")
    for title, command_line in plan.commands.items():
        click.echo(f"\n{title}\n  {' '.join(command_line)}")
    for preview in plan.candidates:
        click.echo(f"\ncandidate: {preview.text}")
        if preview.server_args:
            click.echo(f"  tritonserver {' '.join(preview.server_args)}")
        for line in preview.diff.splitlines():
            click.echo(f"  {line}")
    click.echo(f"\nnext:  tune run {spec}", err=True)
