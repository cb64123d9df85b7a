"""JSON values one after another: the elements of a list, or documents; read piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

#: Decodes the value that starts at a position, and gives its end; None as the end if text is
#: missing. Raises JSONDecodeError if more text cannot help.
Decode = Callable[[str, int], tuple[Any, int | None]]

_BETWEEN, _IN_LIST = re.compile(r"[\[\], \t\r\n]*"), re.compile(r"[, \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)
#: How near to the end of the text a mistake may be that is none when more text follows.
_NEAR = 16
#: More than the text that opens a list.
_OPENING = 256


class ElementError(ValueError):
    """A value cannot be read; ``cut``: the text ends in it."""

    def __init__(self, line: int, column: int, *, cut: bool) -> None:
        super().__init__(f"line {line}, column {column}")
        self.line, self.column, self.cut = line, column, cut


def elements(
    chunks: Iterator[str], most: int, decode: Decode, opening: re.Pattern[str] | None = None
) -> Iterator[tuple[int, int, Any]]:
    """Line, column and value of each element.

    Args:
        chunks: The text in pieces.
        most: Most characters of an element.
        decode: Decodes one element.
        opening: Text that opens a list; values outside of such lists are passed over.

    Raises:
        ElementError: A value is no JSON, too long, or cut off at the end of the text.
    """
    text, at, inside = "", 0, opening is None
    line, line_start, counted = 1, 0, 0  # of the position `counted` in `text`
    while chunk := next(chunks, ""):
        text += chunk
        while True:
            at, inside = _next(text, at, opening, inside=inside)
            if breaks := text.count("\n", counted, at):
                line, line_start = line + breaks, text.rindex("\n", counted, at) + 1
            counted = at
            if not inside:
                break
            try:
                value, end = decode(text, at)
            except json.JSONDecodeError as error:
                breaks, last = text.count("\n", at, error.pos), text.rfind("\n", at, error.pos)
                column = error.pos - (last if breaks else line_start - 1)
                raise ElementError(line + breaks, column, cut=False) from error
            if end is None:
                break
            yield line, at - line_start + 1, value
            at = end
        text, at, line_start, counted = text[at:], 0, line_start - at, 0
        if len(text) > most:
            raise ElementError(line, 1 - line_start, cut=False)
    if inside and text.strip("] \t\r\n"):
        raise ElementError(line, 1 - line_start, cut=True)


def _next(text: str, at: int, opening: re.Pattern[str] | None, *, inside: bool) -> tuple[int, bool]:
    """The start of the next element, and True; where none is, a place to look from, and False."""
    if opening is None:
        return _after(_BETWEEN, text, at), True
    while True:
        if inside:
            at = _after(_IN_LIST, text, at)
            if text[at : at + 1] != "]":
                return at, True
        match = opening.search(text, at)
        if match is None:
            return max(at, len(text) - _OPENING), False
        at, inside = match.end(), True


def _after(separators: re.Pattern[str], text: str, at: int) -> int:
    match = separators.match(text, at)
    return at if match is None else match.end()


def decoded(text: str, at: int) -> tuple[Any, int | None]:
    """The JSON value at a position, as `Decode` says."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated") or error.pos > len(text) - _NEAR:
            return None, None
        raise
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, deep nesting
        raise json.JSONDecodeError(str(error), text, at) from error
