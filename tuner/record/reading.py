"""Reads the files of a run without trusting them.

A full disk may have cut them short, and anybody may have edited or sent them. Content that `tune`
does not write raises an `UnreadableFileError` with the file and, where there is one, the line.
Reading never waits and opens no device.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from tuner.errors import SpecError
from tuner.regular import read_regular
from tuner.spec.mistakes import dotted, reason_of
from tuner.spec.units import count_text

#: A run of thousands of trials has a tenth of this.
MAX_BYTES = 256 * 2**20
#: Twice the depth of the deepest file of a run, a report's result.
MAX_DEPTH = 40
_MAX_INTEGER = 2**63
_T = TypeVar("_T")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HINT = "was it edited, cut short, or written by another version of tune?"


class UnreadableFileError(SpecError):
    """A file of a run or a check is not as tune writes it; `message` names the file."""


def read_bytes(path: Path) -> bytes | None:
    """The content of a regular file; None if nothing has this name.

    Raises:
        UnreadableFileError: It is a pipe, a device or a directory, too large, or access is denied.
    """
    try:
        content = read_regular(path, MAX_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            _refuse(str(path), "it is a link to nothing")
        return None
    except OSError as error:
        _refuse(str(path), (error.strerror or str(error)).lower())
    if len(content) > MAX_BYTES:
        _refuse(str(path), f"it has more than {MAX_BYTES} bytes, which no file of a run has")
    return content


def read_json(path: Path, kind: type[_T]) -> _T | None:
    """The value in a JSON file; None if there is no file. ``kind``: dict or list.

    Raises:
        UnreadableFileError: It is not JSON, or not of ``kind``.
    """
    content = read_bytes(path)
    if content is None:
        return None
    return _parsed(content, str(path), kind)


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each complete line of a JSONL file; text after the last newline is skipped.

    Raises:
        UnreadableFileError: A line is not a JSON object.
    """
    content = read_bytes(path) or b""
    complete = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(complete.split(b"\n"), 1):
        if line.strip():
            place = f"{path}:{number}"
            yield place, _parsed(line, place, dict)


def torn_line(path: Path) -> str:
    """A sentence about text after the last newline of a JSONL file; empty if there is none."""
    content = read_bytes(path) or b""
    end = content.rfind(b"\n") + 1
    if end == len(content):
        return ""
    line, torn = content.count(b"\n") + 1, count_text(len(content) - end, "byte")
    return f"{path.name}:{line}: the file was cut short or damaged there; {torn} are left out"


def read_as(place: str, data: Mapping[str, Any], make: Callable[[Any], _T]) -> _T:
    """What ``make`` returns for the data read at ``place``, a ``file`` or ``file:line``.

    Raises:
        UnreadableFileError: A value is missing, or of another type.
    """
    try:
        return make(data)
    except KeyError as error:
        _refuse(place, f"{error.args[0]!r} is missing")
    except ValidationError as error:
        _refuse(place, _mistake(error))
    except (TypeError, ValueError, AttributeError, AssertionError, LookupError) as error:
        _refuse(place, str(error) or "not what tune writes there")


def read_received(place: str, data: Any, make: Callable[[Any], _T]) -> _T:
    """Like `read_as`, for JSON that another process put into the study, not into a file.

    Raises:
        UnreadableFileError: ``make`` does not accept it.
    """
    if not isinstance(data, Mapping):
        _refuse(place, f"an object was expected, not {_name(type(data))}")
    if wrong := _unheard_of(data):
        _refuse(place, wrong)
    return read_as(place, data, make)


def _mistake(error: ValidationError) -> str:
    """The first mistake, in words: ``points[0].load.level cannot be 'many'``."""
    first = max(error.errors(), key=lambda e: len(e["loc"]))  # the closest member of a union
    place = dotted(first["loc"])
    if first["type"] == "missing":
        return f"{place!r} is missing"
    if first["type"] in ("value_error", "assertion_error"):
        return f"{place}: {reason_of(first)}" if place else reason_of(first)
    value = repr(first["input"])
    value = value if len(value) < 60 else f"{value[:57]}..."
    return f"{place or 'the value'} cannot be {value}"


def _parsed(content: bytes, place: str, kind: type[_T]) -> _T:
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        line = f":{error.lineno}" if ":" not in place.rpartition("/")[2] else ""
        _refuse(f"{place}{line}", f"not JSON: {error.msg} (column {error.colno})")
    except RecursionError:
        _refuse(place, "nested too deeply")
    except ValueError as error:  # not UTF-8, or a number with thousands of digits
        _refuse(place, f"not JSON: {error}")
    if wrong := _unheard_of(value):
        _refuse(place, wrong)
    if not isinstance(value, kind):
        _refuse(place, f"{_name(kind)} was expected, not {_name(type(value))}")
    return value


def _unheard_of(value: Any) -> str:
    """Why no file of a run can have this value, valid JSON though it is; empty if one can."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend([*item, *item.values()])
            elif isinstance(item, list):
                below.extend(item)
            elif wrong := _no_value(item):
                return wrong
        if not below:
            return ""
        level = below
    return "nested too deeply"


def _no_value(item: Any) -> str:
    if isinstance(item, float) and not math.isfinite(item):
        return f"{item} is not a number that a measurement can have"
    if isinstance(item, int) and abs(item) >= _MAX_INTEGER:
        return "a number is larger than any measurement's"
    if isinstance(item, str) and not item.isascii() and _SURROGATE.search(item):
        return "a text holds only half of a character"
    return ""


def _name(kind: type) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return names.get(kind, "null" if kind is type(None) else "a number")


def _refuse(place: str, why: str) -> NoReturn:
    raise UnreadableFileError(f"{place} cannot be read: {why}", _HINT)
