"""What an unparsable text most likely is: a template, a merge conflict, another format."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(r"\$\{|\{\{|\{%|\$[A-Za-z_]|<[A-Z][A-Z_]+>")
_LONGEST_NAME = 100  # of a field: a search through a long text would take seconds
_CONFLICT = re.compile(r"(<{7}|={7}|>{7}|\|{7})( |$)")


def hint_at(text: str, line: int, column: int) -> str:
    """Advice for a mistake at ``line`` and ``column`` (from 1), empty when nothing is known."""
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return ""
    whole = lines[line - 1]
    here, before = whole[column - 1 :], "\n".join([*lines[: line - 1], whole[: column - 1]])
    if _CONFLICT.match(whole):
        return "a merge conflict is left in the file: choose one side"
    if _PLACEHOLDER.search(whole):
        return "this is a template: fill in its placeholders first"
    if here.startswith("\ufeff"):
        return "save the file without a byte order mark (BOM)"
    if here.startswith(("//", "/*")):
        return "comments begin with #"
    if here.startswith("="):
        return "write : instead of ="
    return _hint_before(here, before)


def _hint_before(here: str, before: str) -> str:
    previous = re.sub(r"#[^\n]*(?=\n|$)", "", before).rstrip(" \t\r\n")
    if here.startswith("]") and previous.endswith(","):
        return "remove the comma before ]"
    field = previous[:-1].rstrip()[-_LONGEST_NAME:] if previous.endswith(":") else ""
    name = re.search(r"\w+$", field)
    if name and "\n" in before[len(previous) :] and not here.startswith(("{", "[")):
        return f"{name[0]} has no value: its line ends after the colon"
    return ""
