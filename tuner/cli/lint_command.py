"""`tune lint`: what is wrong or risky in a model repository."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options
from tuner.cli.github import annotation, in_github
from tuner.cli.terminal import say, say_annotation, say_json

if TYPE_CHECKING:
    from tuner.lint.rules import Finding

_COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command("lint")
@click.argument("repository", type=click.Path(path_type=Path))
@click.option("--model", help="Check this model only.")
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
    help="Version directories and model files are absent, as in a git checkout without them. "
    "Detected automatically when no model has a directory in it.",
)
@options.output_format
def command(
    repository: Path,
    model: str | None,
    ignore: tuple[str, ...],
    no_weights: bool,
    output_format: str,
) -> int:
    """List what is wrong or risky in the config.pbtxt and model.py files of REPOSITORY.

    Exit code 2 when there is an error, 0 otherwise. docs/lint.md lists the rules.
    """
    from tuner.lint.repository import lint_repository
    from tuner.lint.rules import Finding, Severity
    from tuner.writeback.rollback import half_written

    findings = lint_repository(repository, model, ignore=ignore, weights=not no_weights)
    for models, half in half_written(repository).items():
        if model in (None, *models) and "config-file" not in ignore:
            rule = (Severity.ERROR, "config-file")
            findings.append(Finding(repository, 1, None, *rule, half.message, half.hint))
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
            say("nothing to complain about", err=True)
    for finding in findings if in_github() else ():
        say_annotation(_annotation(finding))
    return 2 if any(f.severity is Severity.ERROR for f in findings) else 0


def _annotation(finding: Finding) -> str:
    level = "notice" if finding.severity.value == "note" else finding.severity.value
    file, column = str(finding.file), finding.column or 0
    return annotation(level, finding.message, file=file, line=finding.line, column=column)
