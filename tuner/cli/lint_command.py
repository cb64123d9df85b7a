"""`tune lint`: what is wrong or risky in a model repository."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.github import annotation, in_github
from tuner.cli.options import output_format
from tuner.cli.terminal import say, say_annotation, say_json

if TYPE_CHECKING:
    from tuner.modelconfig.lint_finding import Finding

_COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command("lint")
@click.argument("repository", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--model", help="Look at this model only.")
@output_format
def command(repository: Path, model: str | None, output_format: str) -> int:
    """List what is wrong or risky in the config.pbtxt and model.py files of REPOSITORY.

    Exit code 2 when there is an error, 0 otherwise.
    """
    from tuner.modelconfig.lint import Severity, lint_repository

    findings = lint_repository(repository, model)
    if output_format == "json":
        rows = [{**asdict(f), "file": str(f.file), "severity": f.severity.value} for f in findings]
        say_json(rows)
    else:
        for finding in findings:
            severity = click.style(finding.severity.value, fg=_COLORS[finding.severity.value])
            column = "" if finding.column is None else f":{finding.column}"
            say(
                f"{finding.file}:{finding.line}{column}: {severity}: {finding.message} "
                f"[{finding.rule}]"
            )
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
