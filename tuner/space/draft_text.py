"""A draft as data, entries and remarks, and the functions that write it as YAML."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.plain import plain
from tuner.spec.yaml_tree import dump_item

#: No line with a remark is longer, in columns.
WIDTH = 100
#: Where remarks of a draft's sections begin; others begin so many columns behind their value.
COLUMN, _GAP = 37, 5


@dataclass(frozen=True)
class Remark:
    """A comment on separate lines."""

    text: str


@dataclass(frozen=True)
class DraftEntry:
    """A key with its value, or with entries below.

    Attributes:
        key: `-` for an item of a list.
        value: As YAML, on one line.
        remark: Behind the value, or above where a line has no room for it.
        column: Where the remark begins; 0: a gap behind the value.
        mark: What makes a comment of the entry, for users to remove.
    """

    key: str
    value: str = ""
    remark: str = ""
    below: tuple[DraftEntry | Remark, ...] = ()
    column: int = 0
    mark: str = ""

    @property
    def text(self) -> str:
        sign = "" if self.key == "-" else ":"
        return f"{self.mark}{self.key}{sign} {self.value}".rstrip()


Draft = Iterable[DraftEntry | Remark]


def remarks(*lines: str) -> list[Remark]:
    """A comment of several lines, with the given line breaks."""
    return [Remark(line) for line in lines]


def item(value: Any, remark: str = "", mark: str = "") -> DraftEntry:
    """An item of a list."""
    return DraftEntry("-", flow(value), remark, mark=mark)


def off(key: str, value: str, remark: str = "") -> DraftEntry:
    """An entry as a comment, below remarks that say when to use it."""
    return DraftEntry(key, value, remark, mark="#   ")


def as_yaml(draft: Draft) -> str:
    return "\n".join(written(draft)) + "\n"


def written(draft: Draft, indent: str = "") -> Iterator[str]:
    """The lines of a draft. A line break in a model's name does not start a line."""
    for part in draft:
        if isinstance(part, Remark):
            yield from _comment(part.text, indent)
            continue
        line = indent + part.text
        column = max(part.column - len(line), 1) if part.column else _GAP
        behind = f"{line}{' ' * column}# {plain(part.remark)}"
        if not part.remark:
            yield line
        elif len(behind) <= WIDTH:
            yield behind
        else:
            yield from _comment(f"{part.remark}:" if part.mark else part.remark, indent)
            yield line
        yield from written(part.below, indent + "  ")


def _comment(text: str, indent: str) -> list[str]:
    """Wraps the text into lines; a word longer than a line is not split."""
    lead = indent + "# "
    text = plain(text)
    inset = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=lead,
        subsequent_indent=lead + inset,
        drop_whitespace=True,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [lead.rstrip()]


def flow(value: Any) -> str:
    """A value as YAML on one line, which the spec's reader reads back."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return "on" if value else "off"
    return dump_item(value)
