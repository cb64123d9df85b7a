"""Rows of logs in JSON: an object a line, objects in lists and documents, lines inside objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.recordings.access_formats import (
    DATED,
    DOCUMENTS,
    LISTS_OF_ROWS,
    date_in,
    dated_row,
    format_of,
    has_path,
    path_in,
    row_of,
)
from tuner.load.traffic.recordings.json_elements import ElementError, decoded, elements
from tuner.load.traffic.recordings.log_times import known_time, likely_times
from tuner.load.traffic.recordings.making import Making

Row = Mapping[str, Any]

#: Longest beginning of a document that is looked at, and longest JSON value in it.
_HEAD, _LONGEST_VALUE = 1 << 16, 1 << 20
#: A note about lines.
CUT_OFF = "cut off at the end of the log, left out"
#: What Docker, collectors of logs, and clouds call a line inside a line, in lower case.
_INNER_LINES = {
    *("log", "message", "@message", "msg", "textpayload", "line"),
    *("_raw", "logentry", "logmessage", "original"),
}


def object_in(text: str) -> dict[str, Any] | None:
    if text[:1] == "{":
        with suppress(ValueError, RecursionError):
            if isinstance(row := json.loads(text), dict):
                return row
    return None


def rows_of_object(record: Row, before: str) -> Iterator[Row]:
    """The row of a JSON object, or the rows of the list in it, as AWS and Azure write them.

    Args:
        before: The text before the object, whose date is that of a row without one.
    """
    row = _row_of_object(record)
    rows = None if has_path(row) else _list_of_rows(record)
    for each in [row] if rows is None else map(_row_of_object, rows):
        yield _with_date(each, before)


def _list_of_rows(record: Row, depth: int = 2) -> list[Row] | None:
    for key, value in record.items():
        if key in LISTS_OF_ROWS and isinstance(value, list):
            return [row for row in value if isinstance(row, dict)]
        inner = value if depth and isinstance(value, dict) else {}
        if (rows := _list_of_rows(inner, depth - 1)) is not None:
            return rows
    return None


_LIST_OF_ROWS = re.compile(rf'"(?:{"|".join(LISTS_OF_ROWS)})"\s*:\s*\[\s*(?=\{{)')


def _row_of_object(record: Row) -> Row:
    """The row of a JSON object, or of a line inside it."""
    row = dict(_flat(record))
    return inner_row(row) or row


def row_after_text(line: str) -> Row | None:
    """The row of a JSON object after other text, whose date is that of an object without one."""
    start = _OBJECT_AFTER.search(line)
    record = None if start is None else object_in(line[start.end() :].rstrip())
    if start is None or record is None:
        return None
    return _with_date(_row_of_object(record), line[: start.start()])


def _with_date(row: Row, before: str) -> Row:
    """The row, with the date in the text before it if it has no time."""
    if (date := date_in(before)) and known_time(row) is None and not likely_times(row):
        return {**row, DATED: date}
    return row


#: Between a JSON object and the text before it.
_OBJECT_AFTER = re.compile(r"\s(?=\{\s*\")")


def refuse_document(path: Path, head: str) -> None:
    """SpecError for a JSON document that holds no requests with times."""
    for form, what, hint in DOCUMENTS:
        if form.match(head):
            raise SpecError(f"{path}: {what}", hint)


def document_rows(path: Path, file: TextIOWrapper, making: Making) -> Iterator[tuple[int, Row]]:
    """The rows of JSON over several lines: a list, documents, or a list in a document."""
    opening = _LIST_OF_ROWS if _is_in_document(file.read(_HEAD).lstrip()) else None
    file.seek(0)
    chunks = iter(lambda: file.read(_HEAD), "")
    try:
        for line, column, value in elements(chunks, _LONGEST_VALUE, decoded, opening):
            if not isinstance(value, dict):
                raise SpecError(f"{path}:{line}:{column}: not a request with columns by name")
            yield from ((line, row) for row in rows_of_object(value, ""))
    except ElementError as error:
        place = f"{path}:{error.line}:{error.column}"
        if not error.cut:
            raise SpecError(f"{place}: not JSON, or a value of more than 1 MiB") from error
        making.note_lines(CUT_OFF, place=place)


def _is_in_document(head: str) -> bool:
    """Whether rows are in a list in a document, rather than in a list or in documents."""
    if head[:1] != "{":
        return False
    try:
        first, end = decoded(head, 0)
    except json.JSONDecodeError:
        return False
    if end is None:
        return _LIST_OF_ROWS.search(head) is not None
    return not has_path(_row_of_object(first)) and _list_of_rows(first) is not None


def inner_row(row: Row) -> Row | None:
    """The row of a line inside a line, as the logs of containers hold them; None without one."""
    for name in _inner_columns(tuple(row)):
        if not isinstance(line := row[name], str):
            continue
        if (known := format_of(line)) is not None:
            return row_of(line, known)
        if (inner := object_in(line)) is not None:
            return dict(_flat(inner))
        if path := path_in(line):
            return dated_row(line) or {**row, "path": path}
    return None


@lru_cache(maxsize=256)
def _inner_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name.rpartition(".")[2].lower() in _INNER_LINES)


def _flat(row: Row, above: str = "", depth: int = 8) -> Iterator[tuple[str, Any]]:
    """Columns of a JSON object; keys of nested objects become columns such as ``request.uri``."""
    for key, value in row.items():
        alone = isinstance(value, list) and len(value) == 1 and key not in LISTS_OF_ROWS
        one = value[0] if alone else value
        if isinstance(one, dict) and one and depth:
            yield from _flat(one, f"{above}{key}.", depth - 1)
        else:
            yield f"{above}{key}", one
