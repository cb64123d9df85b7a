"""Requests in an access log: a table with a time in each row, and what shapes follow from.

A table is CSV, whose first line names the columns, or JSON lines, whose keys do, or lines of the
usual format of nginx or Envoy. Nothing of a line is shown that may be somebody's address.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import TIME_UNITS, finite
from tuner.load.traffic.recordings.access_formats import (
    FORMATS,
    KNOWN_TIMES,
    TimeColumn,
    call_of,
    format_of,
    moment_s,
    row_of,
    without_address,
)
from tuner.load.traffic.recordings.lines import opened
from tuner.load.traffic.recordings.making import LoggedRequest, Making
from tuner.plain import plain
from tuner.spec.mistakes import in_brackets, listed


@dataclass(frozen=True)
class LogColumns:
    """The places of what a log tells.

    Attributes:
        time: "" for the one of nginx or Envoy that is there.
        shapes: By input, its dimensions without the batch: whole numbers, or columns with such.
        time_unit: Of times that are numbers; others are dates as of ISO 8601, or nginx's.
        stream: "" where there is no such column; likewise ``model`` and ``client``.
        took: How long a request took, where times are those of its answer.
        took_unit: Of these.
        by_path: The model is the one that the path of a request names.
    """

    time: str = ""
    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    time_unit: str = "s"
    stream: str = ""
    model: str = ""
    client: str = ""
    took: str = ""
    took_unit: str = "s"
    by_path: bool = False

    @property
    def named(self) -> set[str]:
        dims = {dim for names in self.shapes.values() for dim in names if not dim.isdecimal()}
        names = {self.time, *dims, self.stream, self.model, self.client, self.took}
        return names - {""}


def requests_of_log(
    paths: Sequence[Path], columns: LogColumns, making: Making | None = None
) -> Iterator[LoggedRequest]:
    """The requests of logs; ``making`` gets notes on what was left out, and on the times.

    Raises:
        SpecError: A file cannot be read, or a row lacks what is asked for, with its place.
    """
    making = making or Making()
    clients, models = _Clients(), set[str]()
    for path in paths:
        for number, row in _rows(path):
            place = f"{path}:{number}:1"
            _refuse_lacking(columns, row, place)
            request = call_of(row)
            if request.left_out:
                making.note(request.left_out)
                continue
            models.add(request.model)
            time = _time_column(columns, row, place)
            took_s = _took_s(row, time, columns, place)
            if took_s is None:
                making.note(_OF_THE_ANSWER)
            labels = {"stream": columns.stream, "model": columns.model}
            content: dict[str, Any] = {key: str(row[name]) for key, name in labels.items() if name}
            if columns.by_path and request.model:
                content["model"] = request.model
            if columns.client:
                content["client"] = clients.name(str(row[columns.client]))
            if columns.shapes:
                content["shapes"] = {
                    name: [_dim(row, dim, place) for dim in shape]
                    for name, shape in columns.shapes.items()
                }
            at_s = _time_s(row[time.name], columns, place)
            yield LoggedRequest(at_s, content, place, took_s or 0.0)
    if len(names := sorted(models - {""})) > 1 and not (columns.by_path or columns.model):
        making.note_of_all(f"the log is of {listed(names)}: --named tells them apart")


#: A note on requests whose times say when they were answered, and not how long that took.
_OF_THE_ANSWER = (
    "the time is that of the answer, and the log does not say how long it took: the gaps are "
    "those of the answers; log $request_time too"
)


class _Clients:
    """Names of clients, with numbers in place of what may be an address."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def name(self, given: str) -> str:
        if "address" not in without_address(given):
            return given[:80]
        return f"client {self._numbers.setdefault(given, len(self._numbers) + 1)}"


def _refuse_lacking(columns: LogColumns, row: Mapping[str, Any], place: str) -> None:
    if not (lacking := sorted(columns.named - row.keys())):
        return
    names = [name for name in row if re.fullmatch(r"[A-Za-z_@][\w@ /-]{0,39}", name)]
    if len(names) < len(row):
        raise SpecError(
            f"{place}: the first line has no names of columns (the line is not printed, since "
            "it may hold addresses)",
            "lines of nginx's combined or Envoy's default format are read as they are; else give "
            "CSV with a header, or JSON lines",
        )
    near = in_brackets(lacking[0], names)
    raise SpecError(
        plain(f"{place}: there is no column {lacking[0]!r}{near}; the columns are {listed(names)}")
    )


def _time_column(columns: LogColumns, row: Mapping[str, Any], place: str) -> TimeColumn:
    known = {column.name: column for column in KNOWN_TIMES}
    if columns.time:
        return known.get(columns.time, TimeColumn(columns.time))
    for column in KNOWN_TIMES:
        if column.name in row:
            return column
    raise SpecError(f"{place}: no column says when a request came", "name it with --time COLUMN")


def _took_s(
    row: Mapping[str, Any], time: TimeColumn, columns: LogColumns, place: str
) -> float | None:
    """How long before its time a request came; None where that is not known."""
    name = columns.took or time.took
    if not name:
        return 0.0
    if name not in row:
        return None
    took = finite(row[name])
    if took is None or took < 0.0:
        if not columns.took:
            return None  # such as `-`
        public = without_address(row[name])
        raise SpecError(plain(f"{place}: {name} is no length of time: {public}"))
    return took * TIME_UNITS[columns.took_unit if columns.took else "s"]


def _dim(row: Mapping[str, Any], dim: str, place: str) -> int:
    if dim.isdecimal():
        return int(dim)
    length = finite(row[dim])
    if length is None or length != int(length) or length < 1:
        public = without_address(row[dim])
        raise SpecError(plain(f"{place}: {dim} is no length of 1 or more: {public}"))
    return int(length)


def _time_s(given: Any, columns: LogColumns, place: str) -> float:
    number = finite(given)
    if number is not None:
        return number * TIME_UNITS[columns.time_unit]
    try:
        return moment_s(str(given))
    except (ValueError, OverflowError, OSError) as error:  # also of the year 1, or 9999
        message = (
            f"{place}: {columns.time} is neither a number nor a date as of ISO 8601: "
            f"{without_address(given)}"
        )
        raise SpecError(plain(message)) from error


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a table, each with its line."""
    try:
        with opened(path) as raw:
            file = TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            first = file.readline(_LONGEST)
            file.seek(0)
            if (known := format_of(first)) is not None:
                yield from _format_rows(path, file, known)
            else:
                yield from _json_rows(path, file) if first[:1] == "{" else _csv_rows(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(plain(f"{path}: not a table: {error}")) from error


#: No line of an access log is longer.
_LONGEST = 1 << 16


def _format_rows(
    path: Path, file: TextIOWrapper, known: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            row = row_of(line[:_LONGEST], known)
            if row is None:
                raise SpecError(
                    f"{path}:{number}:1: not in {known}'s usual format, as the first line is",
                    f"the formats that are read are those of {listed(FORMATS)}",
                )
            yield number, row


def _csv_rows(file: TextIOWrapper) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(file, restkey="", restval="", skipinitialspace=True)
    for row in reader:
        yield reader.line_num, row


def _json_rows(path: Path, file: TextIOWrapper) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(file, 1):
        try:
            row = json.loads(line.rstrip("\r\n"))
        except (ValueError, RecursionError) as error:
            column = getattr(error, "pos", 0) + 1
            raise SpecError(f"{path}:{number}:{column}: not JSON") from error
        if not isinstance(row, dict):
            raise SpecError(f"{path}:{number}:1: not an object with columns")
        yield number, row
