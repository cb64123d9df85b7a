"""All output of `tune`. Text from outside is shown, and never acts as a command.

A terminal executes escape sequences; a CI system executes lines that begin with ``::`` or contain
``##[``. Both may occur in a config.pbtxt, a directory's name, a YAML key or a server's message.
Passwords in any text are hidden here, too.
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

#: GitHub rejects a step summary above 1 MiB; the rest is left for other tools of the step.
SUMMARY_LIMIT_BYTES = 900 * 1024
#: The styles that tune uses (`click.style`); other escape sequences are escaped.
_STYLE = re.compile(r"(\x1b\[(?:0|1|31|32|33|36)m)")
#: A workflow command of GitHub; GitHub ignores spaces in front of it.
_COMMAND = re.compile(r"^((?:\s|\x1b\[\d+m)*):(?=:)", re.MULTILINE)
#: Commands of old GitHub runners, Azure Pipelines and TeamCity, anywhere in a line.
_OTHER_COMMAND = re.compile(r"##(?=\w*\[)")


def harmless(line: str) -> str:
    """``line`` as one line that neither a terminal nor a CI system executes."""
    return _no_command(_between_styles(line, plain))


def harmless_lines(text: str) -> str:
    """``text`` as lines that neither a terminal nor a CI system executes."""
    return _no_command(_between_styles(text, plain_lines))


def say(line: str = "", *, err: bool = False) -> None:
    """Prints one line."""
    _put(harmless(line) + "\n", err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Prints several lines."""
    _put(harmless_lines(text) + "\n", err=err)


def say_notes(notes: Iterable[str]) -> None:
    """Prints notes on stderr."""
    for note in notes:
        say(f"note:  {note}", err=True)


def say_annotations(lines: Iterable[str]) -> None:
    """Prints workflow commands made by `annotation`, if GitHub Actions reads the output."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _put("".join(f"{line}\n" for line in lines), err=True)


def say_json(data: Any) -> None:
    """Prints JSON on stdout, in ASCII, which contains no escape sequences."""
    _put(json.dumps(data, indent=2) + "\n")


def say_json_line(data: Any) -> None:
    """Prints JSON as one line on stdout."""
    _put(json.dumps(data) + "\n")


def say_document(text: str) -> None:
    """Prints a text for a file or a program: exact unless a terminal or CI system reads it."""
    _put(
        harmless_lines(text) if _is_interpreted() else text, color=True
    )  # else click drops colours


def say_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Prints a table on stdout, its columns aligned."""
    from tuner.report.terminal import columns

    for line in columns(rows, width()):
        say(line.removeprefix("  "))


def width() -> int:
    """Columns of the terminal; 0 if stdout is not a terminal."""
    return shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0


def say_report(directory: Path, document: Document) -> None:
    """Prints the first screen of a report on stdout, verdict last, and the path of the report."""
    from tuner.report.terminal import lines_to_verdict

    for line in (*lines_to_verdict(document, width()), f"  report: {directory / 'report.html'}"):
        say_lines(line)


def open_standard_streams() -> None:
    """Opens streams that the caller closed (`>&-`), or the next file gets the number of one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r+"))  # noqa: SIM115 - for the process


class LoggedWarnings(logging.Handler):
    """Prints warnings of Python's logging as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        say_notes([record.getMessage()])


def _put(text: str, *, err: bool = False, color: bool | None = None) -> None:
    """Writes text; ignores EPIPE (`| head`), raises on other errors of stdout (a full disk)."""
    try:
        click.echo(text, nl=False, err=err, color=color)
    except OSError as error:
        with suppress(OSError):  # otherwise Python writes again when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())
        if not err and error.errno != errno.EPIPE:
            raise EnvironmentNotReadyError(f"cannot write to stdout: {error.strerror}") from error


def _is_interpreted() -> bool:
    """Whether stdout is a terminal, or may be the log of a CI system."""
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
    """A workflow command of GitHub, as one line; ``level``: error, warning or notice.

    Source: GitHub's reference of workflow commands; its toolkit for the escapes.
    """
    facts = {"title": title, "file": file, "line": line or "", "col": column or ""}
    properties = ",".join(f"{k}={_property(str(v))}" for k, v in facts.items() if v != "")
    return f"::{level}{' ' if properties else ''}{properties}::{_data(message)}"


def append_summary(report: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Appends a Markdown report to the summary of GitHub's step, if there is one."""
    summary = environment.get("GITHUB_STEP_SUMMARY")
    if not summary or not report.is_file():
        return
    try:
        append_step_summary(Path(summary), report.read_text(encoding="utf-8") + "\n")
    except OSError as error:
        say(f"cannot write the step summary {summary}: {error.strerror}", err=True)


def append_step_summary(path: Path, text: str, limit_bytes: int = SUMMARY_LIMIT_BYTES) -> None:
    """Appends to the file that `$GITHUB_STEP_SUMMARY` names, up to ``limit_bytes`` in all.

    Text beyond the limit is cut at the end of a line, and a note says so.
    """
    used = path.stat().st_size if path.exists() else 0
    note = "\n\n*Cut here, at the size limit of a step summary. See the run's report.md.*\n"
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
