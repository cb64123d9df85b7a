"""How a config.pbtxt is laid out, and changes to it that keep that layout.

A `Splice` replaces a stretch of the text. Each function looks at the lines around the place it
changes: a field on separate lines is added and removed with its lines, one that shares its
line is added and removed within it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.modelconfig.tree import Element, Field, Items, Message

_INDENT = "  "
_BEFORE_MESSAGE = re.compile(r"\s*(\w+\s*:?\s*)?")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
#: What may follow a value without a space between.
_CLOSERS = frozenset("}>],;#")


@dataclass(frozen=True)
class Splice:
    """``text[start:end]`` becomes ``new``."""

    start: int
    end: int
    new: str


def apply(text: str, splices: Sequence[Splice]) -> str:
    """All of them at once; they do not overlap."""
    for splice in sorted(splices, key=lambda s: s.start, reverse=True):
        text = text[: splice.start] + splice.new + text[splice.end :]
    return text


def newline(text: str) -> str:
    """The line ending of the text's first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def indent_unit(text: str, root: Message) -> str:
    """How much deeper the fields of a message are indented than the message itself."""
    pending = list(root.fields)
    while pending:
        for message in pending.pop(0).messages:
            owner = _indentation(text, message.start)
            for inner in message.fields:
                deeper = _indentation(text, inner.start)
                if starts_line(text, inner.start) and deeper.startswith(owner) and deeper != owner:
                    return deeper[len(owner) :]
            pending.extend(message.fields)
    return _INDENT


def starts_line(text: str, position: int) -> bool:
    """Nothing but space is before it on its line."""
    return not text[_line_start(text, position) : position].strip()


def ends_line(text: str, position: int) -> bool:
    """Nothing but space and a comment follows on its line."""
    rest = text[position : _line_end(text, position)].strip()
    return not rest or rest.startswith("#")


def insert_field(
    text: str, root: Message, parent: Message, after: Field | None, lines: Sequence[str]
) -> Splice:
    """Adds a field to ``parent``, behind ``after`` (None: ``parent`` has no fields).

    Args:
        lines: The field, one string a line, indented relative to itself.
    """
    if after is not None:
        return _insert_after(text, parent is root, after, lines)
    if parent is root:
        return _append(text, lines)
    return _insert_into_empty(text, root, parent, lines)


def insert_item(text: str, items: Items, lines: Sequence[str]) -> list[Splice]:
    """Adds a message at the end of ``[ ... ]``."""
    if not items.items:
        opening = items.start + 1
        return [Splice(opening, opening, f" {_inline(lines)}{_space(text, opening)}")]
    last = items.items[-1]
    if not (starts_line(text, last.start) and ends_line(text, last.end)):
        return [Splice(last.end, last.end, f", {_inline(lines)}")]
    line_end = _line_end(text, last.end)
    block = _block(text, lines, _indentation(text, last.start))
    if line_end == last.end:
        return [Splice(last.end, last.end, "," + newline(text) + block)]
    comma = Splice(last.end, last.end, ",")
    return [comma, Splice(line_end, line_end, newline(text) + block)]


def remove_field(text: str, field: Field) -> Splice:
    """Takes the field away, with its line and the comment behind it when it has its own."""
    return _cut(text, field.start, field.end)


def remove_element(text: str, element: Element) -> list[Splice]:
    """Takes one message away; the last of a ``[ ... ]`` is removed with the field."""
    items = element.field.value
    if not isinstance(items, Items) or len(items.items) == 1:
        return [remove_field(text, element.field)]
    message = element.message
    if element.item < len(items.commas):
        return [_cut(text, message.start, items.commas[element.item] + 1)]
    comma = items.commas[-1]
    before = len(text[:comma].rstrip(" \t"))
    return [Splice(before, comma + 1, ""), _cut(text, message.start, message.end)]


def _insert_after(text: str, at_root: bool, after: Field, lines: Sequence[str]) -> Splice:
    if not (starts_line(text, after.start) and ends_line(text, after.end)):
        return Splice(after.end, after.end, f" {_inline(lines)}{_space(text, after.end)}")
    end = _line_end(text, after.end)
    eol = newline(text)
    blank = eol if at_root and len(lines) > 1 and _BLANK_LINE.search(text) else ""
    return Splice(end, end, eol + blank + _block(text, lines, _indentation(text, after.start)))


def _append(text: str, lines: Sequence[str]) -> Splice:
    eol = newline(text)
    block = _block(text, lines, "")
    unfinished = bool(text) and not text.endswith("\n")
    return Splice(len(text), len(text), eol + block if unfinished else block + eol)


def _insert_into_empty(text: str, root: Message, parent: Message, lines: Sequence[str]) -> Splice:
    closing = parent.body_end
    indent = _indentation(text, closing)
    block = _block(text, lines, indent + indent_unit(text, root))
    if starts_line(text, closing):
        start = _line_start(text, closing)
        return Splice(start, start, block + newline(text))
    before = text[_line_start(text, parent.start) : parent.start]
    if _BEFORE_MESSAGE.fullmatch(before) and ends_line(text, _past_separator(text, parent.end)):
        eol = newline(text)
        return Splice(parent.body_start, closing, eol + block + eol + indent)
    start = parent.body_start
    return Splice(start, start, f" {_inline(lines)}{_space(text, start, before_closer=True)}")


def _cut(text: str, start: int, end: int) -> Splice:
    if starts_line(text, start) and ends_line(text, end):
        line_end = _line_end(text, end)
        past = text.find("\n", line_end)
        return Splice(_line_start(text, start), len(text) if past < 0 else past + 1, "")
    follower = text[end : end + 1]
    before = len(text[:start].rstrip(" \t"))
    if (
        not starts_line(text, start)
        and before < start
        and (not follower or follower.isspace() or follower in _CLOSERS)
    ):
        return Splice(before, end, "")
    return Splice(start, end + len(text[end:]) - len(text[end:].lstrip(" \t")), "")


def _block(text: str, lines: Sequence[str], indent: str) -> str:
    return newline(text).join(indent + line for line in lines)


def _inline(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)


def _space(text: str, position: int, *, before_closer: bool = False) -> str:
    """The space needed between something new and what is at ``position``."""
    follower = text[position : position + 1]
    if not follower or follower.isspace() or (follower in _CLOSERS and not before_closer):
        return ""
    return " "


def _past_separator(text: str, position: int) -> int:
    return position + 1 if text[position : position + 1] in (",", ";") else position


def _line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _line_end(text: str, position: int) -> int:
    """Before the line ending."""
    end = text.find("\n", position)
    if end < 0:
        return len(text)
    return end - 1 if end > position and text[end - 1] == "\r" else end


def _indentation(text: str, position: int) -> str:
    line = text[_line_start(text, position) : position]
    return line[: len(line) - len(line.lstrip())]
