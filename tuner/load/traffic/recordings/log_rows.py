"""Rows of a log: lines of usual servers, JSON lines, W3C's extended format, or CSV with a header.

What is no request, such as the messages of a server among its access lines, is left out and
counted. Messages never contain anything that may be a person's address.
"""

from __future__ import annotations

import csv
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.recordings.access_formats import (
    FORMATS,
    WITHOUT_REQUESTS,
    dated_row,
    format_of,
    has_path,
    has_request,
    row_of,
    without_runtime,
)
from tuner.load.traffic.recordings.log_objects import (
    CUT_OFF,
    Row,
    document_rows,
    inner_row,
    object_in,
    refuse_document,
    row_after_text,
    rows_of_object,
)
from tuner.load.traffic.recordings.log_times import REPLAY_TIME, W3C_TIME
from tuner.load.traffic.recordings.making import Making
from tuner.load.traffic.source_files import opened_source
from tuner.plain import plain
from tuner.spec.mistakes import listed

_Rows = Iterator[tuple[int, Row]]
_Reader = Callable[[Path, TextIOWrapper, Making], _Rows]

#: Longest line of an access log; of longer ones the beginning is read.
_LONGEST = 1 << 16
#: Longest line of a table.
_LONGEST_ROW = 1 << 20
#: Most lines before the first request.
MOST_BEFORE = 10_000
#: Notes about lines.
NO_REQUEST = "not of requests, left out"
NO_DATE = "of requests, without a date, left out"
_COLUMN_NAME = re.compile(r"[A-Za-z_@$][\w@. /+%()\[\]#-]{0,79}|\d+(?:\.\d+)?%|")


def rows_of(path: Path, making: Making) -> _Rows:
    """The rows of a log, each with its line number.

    Raises:
        SpecError: The file cannot be read, or has none of these forms.
    """
    try:
        with opened_source(path) as raw:
            encoding = "utf-16" if raw.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"
            raw.seek(0)
            file = TextIOWrapper(raw, encoding=encoding, newline="")
            reader = _reader(path, file)
            file.seek(0)
            yield from reader(path, file, making)
    except UnicodeDecodeError as error:
        raise SpecError(plain(f"{path}: not a table: it is no text in UTF-8")) from error
    except csv.Error as error:
        raise SpecError(plain(f"{path}: not a table: {error}")) from error


def column_names(row: Row, place: str) -> list[str]:
    """The columns of a table; SpecError if its first line has no names."""
    if _are_names(row):
        return [name for name in row if name]
    raise SpecError(
        f"{place}: the first line has no names of columns, and no line a request in a known form "
        "(none is printed, since it may hold addresses)",
        "lines of usual servers and proxies are read as they are (docs/recordings.md); else give "
        "CSV with a header, or JSON lines",
    )


def _are_names(names: Mapping[str, Any] | list[str]) -> bool:
    return all(map(_COLUMN_NAME.fullmatch, names)) and any(names)


def _reader(path: Path, file: TextIOWrapper) -> _Reader:
    """How to read the log, by its first line that is not a message of a server."""
    first, refusal, dated = "", None, False
    for number, line in enumerate(islice(_lines(file), MOST_BEFORE), 1):
        text = without_runtime(line)
        if (reader := _reader_of(text, first)) is not None:
            return reader
        refusal = refusal or _refusal(f"{path}:{number}:1", text)
        dated = dated or _dated(line) is not None
        first = first or text.strip()
    if re.match(r'\[\s*(?:\{|$)|\{\s*(?:"|$)', first):
        file.seek(0)
        refuse_document(path, file.read(_LONGEST).lstrip())
        return document_rows
    if refusal is not None and not dated:
        raise refusal
    return _dated_rows if dated else _csv_rows


def _lines(file: TextIOWrapper, longest: int = _LONGEST) -> Iterator[str]:
    """The lines of a file; of each no more than its beginning, however long it is."""
    while line := file.readline(longest):
        yield line
        while len(line) == longest and not line.endswith("\n"):
            line = file.readline(longest)


def _reader_of(line: str, first: str) -> _Reader | None:
    """How to read a log with this line, after its first one; None where the line does not say."""
    if format_of(line) is not None or object_in(line) is not None:
        return _line_rows
    if (row := row_after_text(line)) is not None and has_path(row):
        return _line_rows
    if len(_labels(line)) > 1:
        return _labelled_rows
    if _OF_GOREPLAY.fullmatch(line.rstrip()):
        return _replay_rows
    if line.startswith("#Fields:"):
        return _w3c_rows
    if any(form.match(line) for form, _, _ in WITHOUT_REQUESTS):
        return None
    names = next(csv.reader([line.strip()], delimiter=max(",;\t", key=line.count)), [])
    return _csv_rows if not first and len(names) > 1 and _are_names(names) else None


def _refusal(place: str, line: str) -> SpecError | None:
    """Why a line of a known form holds no request with its time; None for other lines."""
    for form, what, hint in WITHOUT_REQUESTS:
        if form.match(line):
            return SpecError(f"{place}: {what}", hint)
    return None


def _line_rows(path: Path, file: TextIOWrapper, making: Making) -> _Rows:
    """The rows of lines in usual formats, or with a JSON object each."""
    known: str | None = next(iter(FORMATS))
    for number, line in enumerate(_lines(file), 1):
        text = without_runtime(line.rstrip("\r\n"))
        if known is None or (row := row_of(text, known)) is None:
            known = format_of(text)
            row = None if known is None else row_of(text, known)
        if row is not None:
            yield number, row
        elif (record := object_in(text)) is not None:
            if number == 1:
                refuse_document(path, text)
            before = line.partition(text)[0]
            yield from ((number, row) for row in rows_of_object(record, before))
        elif (inner := row_after_text(text)) is not None:
            yield number, inner
        elif text.strip():
            reason = _left_out(f"{path}:{number}", text, cut=not line.endswith("\n"))
            making.note_line(reason, path, number)


def _labelled_rows(path: Path, file: TextIOWrapper, making: Making) -> _Rows:
    """LTSV: tabs between values, and the name of each before it."""
    for number, line in enumerate(_lines(file), 1):
        if len(row := _labels(without_runtime(line))) > 1:
            yield number, row
        elif line.strip():
            making.note_line(NO_REQUEST, path, number)


def _replay_rows(_path: Path, file: TextIOWrapper, _: Making) -> _Rows:
    """GoReplay: a line with the time of a request, and then the request as it was sent."""
    start = None
    for number, line in enumerate(_lines(file), 1):
        if start is not None:
            yield number, {REPLAY_TIME: start[1], "request": line}
        start = _OF_GOREPLAY.fullmatch(line.rstrip())


_OF_GOREPLAY = re.compile(r"1 [0-9a-f]+ (\d{19})(?: -?\d+)?")


def _labels(line: str) -> Row:
    """The values in a line of LTSV by their names; empty for other lines."""
    pairs = [_LABEL.match(part) for part in line.rstrip("\r\n").split("\t")]
    return {m[1]: m[2] for m in pairs if m is not None} if all(pairs) else {}


_LABEL = re.compile(r"([A-Za-z_][\w.-]{0,79}):(.*)")


def _dated_rows(path: Path, file: TextIOWrapper, making: Making) -> _Rows:
    """The rows of lines in no usual format, by the first date in each."""
    for number, line in enumerate(_lines(file), 1):
        if (row := _dated(line)) is not None:
            yield number, row
        elif line.strip():
            reason = NO_DATE if has_request(line) else NO_REQUEST
            making.note_line(reason, path, number)


def _dated(line: str) -> Row | None:
    """The date and the path in a line; the date may be that of a runtime."""
    return dated_row(without_runtime(line)) or dated_row(line)


def _left_out(place: str, line: str, *, cut: bool) -> str:
    """Why a line that cannot be read is left out; SpecError if it has a request."""
    if line[0] == "{":
        if cut:
            return CUT_OFF
        raise SpecError(f"{place}:{_json_column(line)}: not JSON")
    if has_request(line):
        raise SpecError(
            f"{place}:1: a request, but in none of the usual formats of {listed(FORMATS)}",
            "give the requests as CSV with a header, or as JSON lines",
        )
    return NO_REQUEST


def _json_column(text: str) -> int:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return int(getattr(error, "pos", 0)) + 1
    return 1


def _w3c_rows(path: Path, file: TextIOWrapper, _: Making) -> _Rows:
    """W3C's extended format, of IIS and CloudFront: names follow ``#Fields:``."""
    names = list[str]()
    for number, line in enumerate(_lines(file), 1):
        text = line.rstrip("\r\n")
        if text.startswith("#Fields:"):
            names = text.removeprefix("#Fields:").split()
        elif text.strip() and not text.startswith("#"):
            values = text.split("\t" if "\t" in text else " ")
            if len(values) != len(names):
                what = f"{len(values)} values, where #Fields names {len(names)}"
                raise SpecError(f"{path}:{number}:1: {what}")
            row = dict(zip(names, values, strict=True))
            if {"date", "time"} <= row.keys():
                row[W3C_TIME] = f"{row['date']}T{row['time']}"
            yield number, row


def _csv_rows(path: Path, file: TextIOWrapper, _: Making) -> _Rows:
    lines, blank = _table_lines(path, file), 0
    while (header := next(lines, "")).isspace():
        blank += 1
    separator = max(",;\t", key=header.count)
    reader = csv.DictReader(
        chain([header], lines),
        restkey="",
        restval="",
        skipinitialspace=True,
        delimiter=separator,
    )
    for row in reader:
        yield reader.line_num + blank, {**row, **(inner_row(row) or {})}


def _table_lines(path: Path, file: TextIOWrapper) -> Iterator[str]:
    for number, line in enumerate(_lines(file, _LONGEST_ROW), 1):
        if len(line) == _LONGEST_ROW:
            raise SpecError(f"{path}:{number}:1: a line of more than 1 MiB")
        yield line
