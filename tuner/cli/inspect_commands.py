"""Commands that need no server: `tune models`, `lint`, `doctor` and `plan`."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.terminal import annotation, say, say_annotations, say_columns, say_json, say_lines
from tuner.errors import EnvironmentNotReadyError, NothingToSearchError

if TYPE_CHECKING:
    from tuner.lint.rules import LintFinding
    from tuner.run.plan import DrawnPlan


@click.command("models")
@options.repository_argument
@options.output_format
def models_command(repository: Path, output_format: str) -> None:
    """List the models of REPOSITORY: backend, versions, batching, and what of each can be tuned.

    Lists the fields that `tune init` would search on this machine. Starts no server. Exit code 3
    if nothing can be tuned.
    """
    from tuner.run.models import HEADER, list_models
    from tuner.writeback.repository import half_written

    rows = list_models(repository, dict(os.environ))
    if (half := half_written(repository)) is not None:
        say(f"note:  {half.message}", err=True)
    if output_format == "json":
        say_json([asdict(row) for row in rows])
    else:
        say_columns([HEADER, *(row.cells() for row in rows)])
    if not any(row.tunable for row in rows):
        text = f"no model in {repository} can be tuned"
        lint = shlex.join(["tune", "lint", str(repository)])
        raise NothingToSearchError(text, f"{lint} says more about each error")
    say("next:  tune init MODEL", err=True)


#: Colors of a finding's severity.
_COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command("lint")
@options.repository_argument
@click.option("--model", shell_complete=options.complete_model, help="Check this model only.")
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    help="Skip this rule, such as model-file. May be repeated. To skip a rule in one config.pbtxt "
    "or model.py, put a comment there: # tune: ignore RULE",
)
@click.option(
    "--no-weights",
    is_flag=True,
    help="Version directories and model files are absent, as in a git checkout without weights. "
    "Assumed if no model has any subdirectory.",
)
@options.output_format
def lint_command(
    repository: Path,
    model: str | None,
    ignore: tuple[str, ...],
    no_weights: bool,
    output_format: str,
) -> int:
    """List what is wrong or risky in the config.pbtxt and model.py files of REPOSITORY.

    Exit code 2 if there is an error, else 0. docs/lint.md lists the rules.
    """
    from tuner.lint.repository import lint_repository
    from tuner.lint.rules import LintFinding, Severity
    from tuner.writeback.repository import half_written

    findings = lint_repository(repository, model, ignore=ignore, weights=not no_weights)
    half = half_written(repository, model)
    if half is not None and "config-file" not in ignore:
        rule = (Severity.ERROR, "config-file")
        findings.append(LintFinding(repository, 1, None, *rule, half.message, half.hint))
    if output_format == "json":
        rows = [{**asdict(f), "file": str(f.file), "severity": f.severity.value} for f in findings]
        say_json(rows)
    else:
        for finding in findings:
            severity = click.style(finding.severity.value, fg=_COLORS[finding.severity.value])
            say(f"{finding.place}: {severity}: {finding.message} [{finding.rule}]")
            if finding.hint:
                say(f"    {finding.hint}")
        if not findings:
            say("no problems found", err=True)
    say_annotations(map(_annotation, findings))
    return 2 if any(f.severity is Severity.ERROR for f in findings) else 0


def _annotation(finding: LintFinding) -> str:
    level = "notice" if finding.severity.value == "note" else finding.severity.value
    file, column = str(finding.file), finding.column or 0
    return annotation(level, finding.message, file=file, line=finding.line, column=column)


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
def doctor_command(spec: Path | None, output: Path, output_format: str) -> int:
    """Check programs (by running them), ports, GPU and permissions; say how to fix each problem.

    With SPEC, checks what that spec needs; otherwise, what the local mode needs. Exit code 4 if
    something is missing; a busy machine is a warning.
    """
    from tuner.run.doctor import readiness

    checks = readiness(spec, dict(os.environ), results=output, note=partial(say, err=True))
    if output_format == "json":
        say_json([asdict(check) for check in checks])
    else:
        for check in checks:
            mark, color = ("warn", "yellow") if check.fix else ("ok  ", "green")
            mark, color = (mark, color) if check.ok else ("FIX ", "red")
            say(f"{click.style(mark, fg=color)}  {check.label}: {check.found}")
            if check.fix:
                say(f"        {check.fix}")
    return 0 if all(check.ok for check in checks) else EnvironmentNotReadyError.exit_code


@click.command("plan")
@options.spec_argument
@click.option(
    "--candidates",
    type=options.Integer(0),
    default=3,
    show_default=True,
    help="Diffs to show.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also show the full spec with its defaults.")
@options.overrides_option
@options.output_format
def plan_command(
    spec: Path,
    candidates: int,
    verbose: bool,
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Show the size of the space, the expected time and model loads, the first candidates and the
    command lines.

    Starts no server, sends no load, and runs nothing that the spec names, so it is safe with an
    untrusted spec. Runs this machine's tritonserver and perf_analyzer to read their versions,
    unless the spec names others. The JSON output also has the full spec with its defaults. Exit
    code 2 if Triton would refuse a model.
    """
    from tuner.run.plan import draw_plan

    plan = draw_plan(spec, dict(os.environ), candidates, overrides)
    name = shlex.join([str(spec), *(f"--set={override}" for override in overrides)])
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
        say(f"next:  fix the errors above, then: tune plan {name}", err=True)
        return 2
    say(f"next:  tune run {name}", err=True)
    return 0


def lines_of(plan: DrawnPlan) -> list[str]:
    """The size of the space, time, model loads, the first candidates and the command lines."""
    lines = [f"space     {plan.space_text}", f"time      {plan.time_text}"]
    lines.append(f"loads     {plan.loads_text}")
    lines += [f"error     {problem}" for problem in plan.problems]
    lines += [f"note      {note}" for note in plan.notes]
    for preview in plan.candidates:
        lines += ["", f"candidate: {preview.text}"]
        if preview.environment:
            lines.append(f"  environment {' '.join(preview.environment)}")
        if preview.server_args:
            lines.append(f"  tritonserver {shlex.join(preview.server_args)}")
        lines += [f"  {line}" for line in preview.diff.splitlines()]
    for title, command_line in plan.commands.items():
        lines += ["", title, f"  {shlex.join(command_line)}"]
    return lines
