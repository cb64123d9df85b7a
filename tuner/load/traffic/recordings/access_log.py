"""Requests in an access log: a table with a time in each row, and what shapes follow from.

A table is CSV, whose first line names the columns, or JSON lines, whose keys do.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import TIME_UNITS, finite
from tuner.load.traffic.recordings.lines import opened
from tuner.load.traffic.recordings.making import FoundRequest
from tuner.plain import plain
from tuner.spec.mistakes import in_brackets, listed


@dataclass(frozen=True)
class LogColumns:
    """The places of what a log tells.

    Attributes:
        shapes: By input, its dimensions without the batch: whole numbers, or columns with such.
        time_unit: Of times that are numbers; others are dates as of ISO 8601.
        stream: "" where there is no such column; likewise ``model``.
    """

    time: str
    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    time_unit: str = "s"
    stream: str = ""
    model: str = ""

    @property
    def named(self) -> set[str]:
        dims = {dim for own in self.shapes.values() for dim in own if not dim.isdecimal()}
        return {self.time, *dims, self.stream, self.model} - {""}


def requests_of_log(paths: Sequence[Path], columns: LogColumns) -> Iterator[FoundRequest]:
    """The requests of logs.

    Raises:
        SpecError: A file cannot be read, or a row lacks what is asked for, with its place.
    """
    for path in paths:
        for number, row in _rows(path):
            place = f"{path}:{number}:1"
            if lacking := sorted(columns.named - row.keys()):
                near = in_brackets(lacking[0], list(row))
                raise SpecError(
                    plain(f"{place}: there is no {lacking[0]!r}{near}; there are {listed(row)}")
                )
            labels = {"stream": columns.stream, "model": columns.model}
            held: dict[str, Any] = {key: str(row[name]) for key, name in labels.items() if name}
            if columns.shapes:
                held["shapes"] = {
                    name: [_dim(row, dim, place) for dim in own]
                    for name, own in columns.shapes.items()
                }
            yield FoundRequest(_time_s(row[columns.time], columns, place), held, place)


def _dim(row: Mapping[str, Any], dim: str, place: str) -> int:
    if dim.isdecimal():
        return int(dim)
    length = finite(row[dim])
    if length is None or length != int(length) or length < 1:
        raise SpecError(plain(f"{place}: {dim} is no length of 1 or more: {row[dim]!r}"))
    return int(length)


def _time_s(given: Any, columns: LogColumns, place: str) -> float:
    number = finite(given)
    if number is not None:
        return number * TIME_UNITS[columns.time_unit]
    try:
        return datetime.fromisoformat(str(given)).timestamp()
    except (ValueError, OverflowError, OSError) as error:  # also of the year 1, or 9999
        message = (
            f"{place}: {columns.time} is neither a number nor a date as of ISO 8601: {given!r}"
        )
        raise SpecError(plain(message)) from error


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a table, each with its line."""
    try:
        with opened(path) as raw:
            file = TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            first = file.read(1)
            file.seek(0)
            yield from _json_rows(path, file) if first == "{" else _csv_rows(file)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(plain(f"{path}: not a table: {error}")) from error


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
