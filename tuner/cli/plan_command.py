"""`tune plan`: what a run would do."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.storage import children_environment
from tuner.cli.terminal import say, say_json, say_lines

if TYPE_CHECKING:
    from tuner.programs.plan import DrawnPlan


@click.command("plan")
@options.spec_argument
@click.option(
    "--candidates", type=click.IntRange(min=0), default=3, show_default=True, help="Diffs to show."
)
@click.option("-v", "--verbose", is_flag=True, help="Also show the whole spec with its defaults.")
@options.overrides_option
@options.output_format
def command(
    spec: Path,
    candidates: int,
    verbose: bool,
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Show the size of the space, the expected time, the first candidates and the command lines.

    Starts no server, generates no load, and runs nothing that the spec names, so it is safe with a
    stranger's spec. Where the spec names no programs, this machine's own are asked for their
    versions. The JSON output also has the whole spec with its defaults.
    Exit code 2 if Triton would refuse a model.
    """
    from tuner.programs.plan import draw_plan

    plan = draw_plan(spec, children_environment(), candidates, overrides)
    name = shlex.quote(str(spec))
    if output_format == "json":
        say_json(plan.to_json())
        return 2 if plan.problems else 0
    for line in lines_of(plan):
        say(line)
    if verbose:
        say_lines(f"\nthe spec with its defaults\n{plan.effective_spec.rstrip()}")
    else:
        say_lines(f"\nevery field of the spec:  tune plan {name} -v", err=True)
    if plan.problems:
        say("next:  mend the errors above; tune lint says more about each", err=True)
        return 2
    say(f"next:  tune run {name}", err=True)
    return 0


def lines_of(plan: DrawnPlan) -> list[str]:
    """The size of the space, the time, what is tried first, and with which command lines."""
    lines = [f"space     {plan.space_text}", f"time      {plan.estimate.text}"]
    lines += [f"error     {problem}" for problem in plan.problems]
    lines += [f"note      {note}" for note in plan.notes]
    for preview in plan.candidates:
        lines += ["", f"candidate: {preview.text}"]
        if preview.server_args:
            lines.append(f"  tritonserver {shlex.join(preview.server_args)}")
        lines += [f"  {line}" for line in preview.diff.splitlines()]
    for title, command_line in plan.commands.items():
        lines += ["", title, f"  {shlex.join(command_line)}"]
    return lines
