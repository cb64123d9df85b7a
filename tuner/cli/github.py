"""What GitHub Actions reads from a step: annotations in its output, and the step's summary."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tuner.cli.terminal import say
from tuner.hiding import without_passwords
from tuner.plain import plain_lines


def in_github(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get("GITHUB_ACTIONS") == "true"


def annotation(
    level: str, message: str, *, title: str = "", file: str = "", line: int = 0, column: int = 0
) -> str:
    """A workflow command on one line; ``level``: error, warning or notice.

    Source: GitHub's reference of workflow commands, and its toolkit for what is escaped.
    """
    facts = {"title": title, "file": file, "line": line or "", "col": column or ""}
    properties = ",".join(f"{k}={_property(str(v))}" for k, v in facts.items() if v != "")
    return f"::{level}{' ' if properties else ''}{properties}::{_data(message)}"


def append_summary(report: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Appends a Markdown report to the step's summary, if there is one, up to its limit."""
    summary = environment.get("GITHUB_STEP_SUMMARY")
    if not summary or not report.is_file():
        return
    from tuner.report.markdown import append_step_summary

    try:
        append_step_summary(Path(summary), report.read_text(encoding="utf-8") + "\n")
    except OSError as error:
        say(f"the step summary {summary} cannot be written: {error.strerror}", err=True)


def _data(text: str) -> str:
    text = plain_lines(without_passwords(text))
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
