"""Everything that is printed goes through here: text from outside is shown, never obeyed.

A terminal obeys escape sequences; a CI system obeys lines that begin with ``::`` or hold ``##[``.
Both may occur in a config.pbtxt, a directory's name, a YAML key or a server's message. Passwords
are hidden here once more, wherever they came from.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.errors import EnvironmentNotReadyError
from tuner.hiding import without_passwords
from tuner.plain import plain, plain_lines

if TYPE_CHECKING:
    from tuner.report.blocks import Document

#: GitHub refuses a step's summary above 1 MiB; some is left to other tools of the step.
SUMMARY_LIMIT_BYTES = 900 * 1024
#: The colours tune itself writes (`click.style`); nothing else that begins with ESC is let through.
_STYLE = re.compile(r"(\x1b\[(?:0|1|31|32|33|36)m)")
#: A workflow command of GitHub, its space in front trimmed as GitHub does.
_COMMAND = re.compile(r"^((?:\s|\x1b\[\d+m)*):(?=:)", re.MULTILINE)
#: Of GitHub's first runners, Azure Pipelines and TeamCity, anywhere in a line.
_OTHER_COMMAND = re.compile(r"##(?=\w*\[)")


def harmless(line: str) -> str:
    """``line`` as one line that nobody obeys."""
    return _no_command(_between_styles(line, plain))


def harmless_lines(text: str) -> str:
    """``text`` as lines that nobody obeys."""
    return _no_command(_between_styles(text, plain_lines))


def say(line: str = "", *, err: bool = False) -> None:
    """Prints one line."""
    _put(harmless(line) + "\n", err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Prints several lines."""
    _put(harmless_lines(text) + "\n", err=err)


def say_notes(notes: Iterable[str]) -> None:
    """Prints what the user should know, on stderr."""
    for note in notes:
        say(f"note:  {note}", err=True)


def say_annotations(lines: Iterable[str]) -> None:
    """Prints workflow commands of tune's own (`annotation`) where GitHub Actions reads them."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _put("".join(f"{line}\n" for line in lines), err=True)


def say_json(data: Any) -> None:
    """Prints JSON on stdout: in ASCII, so it holds nothing to obey."""
    _put(json.dumps(data, indent=2) + "\n")


def say_json_line(data: Any) -> None:
    """Prints JSON as one line on stdout, at once."""
    _put(json.dumps(data) + "\n")


def say_document(text: str) -> None:
    """Prints a text that may be meant for a file or a program: exact, where nobody obeys it."""
    _put(harmless_lines(text) if _is_obeyed() else text, color=True)  # else click drops colours


def say_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Prints a table on stdout, its columns aligned."""
    from tuner.report.terminal import columns

    for line in columns(rows, width()):
        say(line.removeprefix("  "))


def width() -> int:
    """Asks the terminal for its columns; 0 where stdout is none."""
    return shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0


def say_report(directory: Path, document: Document) -> None:
    """Prints the first screen of a report on stdout, its verdict last, and where all of it is."""
    from tuner.report.terminal import lines_to_verdict

    for line in (*lines_to_verdict(document, width()), f"  report: {directory / 'report.html'}"):
        say_lines(line)


class SaidWarnings(logging.Handler):
    """Says what Python's logging would write to stderr as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        say_notes([record.getMessage()])


def _put(text: str, *, err: bool = False, color: bool | None = None) -> None:
    """Writes; ignores a reader that is gone (`| head`), reports a full disk below stdout."""
    try:
        click.echo(text, nl=False, err=err, color=color)
    except OSError as error:
        with suppress(OSError):  # else Python tries once more as it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())
        if not err and error.errno != errno.EPIPE:
            raise EnvironmentNotReadyError(f"cannot write to stdout: {error.strerror}") from error


def _is_obeyed() -> bool:
    """Stdout is a terminal, or may be the log of a CI system."""
    try:
        to_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        to_file = False
    in_ci = any(map(os.environ.get, ("CI", "TF_BUILD", "TEAMCITY_VERSION")))
    return sys.stdout.isatty() or (in_ci and not to_file)


def _between_styles(text: str, cleaned: Any) -> str:
    parts = _STYLE.split(text)
    return "".join(p if i % 2 else cleaned(without_passwords(p)) for i, p in enumerate(parts))


def _no_command(text: str) -> str:
    return _OTHER_COMMAND.sub(r"#\\x23", _COMMAND.sub(r"\1\\x3a", text))


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
    try:
        append_step_summary(Path(summary), report.read_text(encoding="utf-8") + "\n")
    except OSError as error:
        say(f"the step summary {summary} cannot be written: {error.strerror}", err=True)


def append_step_summary(path: Path, text: str, limit_bytes: int = SUMMARY_LIMIT_BYTES) -> None:
    """Appends to the file that `$GITHUB_STEP_SUMMARY` names, up to ``limit_bytes`` in all.

    Text that does not fit is cut after a line and replaced by a note.
    """
    used = path.stat().st_size if path.exists() else 0
    note = "\n\n*Cut here: the summary of a step cannot be longer. See the run's report.md.*\n"
    content = text.encode()
    room = limit_bytes - used
    if len(content) > room:
        room -= len(note.encode())
        if room <= 0:
            return
        content = content[:room]
        content = content[: content.rfind(b"\n") + 1] + note.encode()
    with path.open("ab") as file:
        file.write(content)


def _data(text: str) -> str:
    text = plain_lines(without_passwords(text))
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
