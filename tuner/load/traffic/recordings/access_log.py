"""Requests in access logs: the time of each request, its model, and the sizes of its inputs.

`log_rows` reads the rows of a log, `log_times` their times. Messages never contain anything that
may be a person's address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import finite
from tuner.load.traffic.recordings.access_formats import (
    DATED,
    call_of,
    has_path,
    without_address,
)
from tuner.load.traffic.recordings.log_objects import Row
from tuner.load.traffic.recordings.log_rows import (
    MOST_BEFORE,
    NO_REQUEST,
    column_names,
    rows_of,
)
from tuner.load.traffic.recordings.log_times import (
    TimeColumn,
    known_time,
    length_column,
    length_s,
    likely_times,
    time_s,
)
from tuner.load.traffic.recordings.making import LoggedRequest, Making
from tuner.plain import plain
from tuner.spec.mistakes import in_brackets, listed


@dataclass(frozen=True)
class LogColumns:
    """The columns of a log.

    Attributes:
        time: Column with the time; "": a known column of a common format.
        shapes: Dimensions by input, without the batch: whole numbers, or columns with such numbers.
        time_unit: Unit of times that are numbers; other times are dates. "": seconds, or the known
            unit of a known column.
        stream: Column with the stream; "" without one.
        model: Column with the model; "" without one.
        client: Column with the client; "" without one.
        took: Column with the duration of a request, if times are those of its answer.
        took_unit: Unit of the durations; "": as `time_unit`.
        by_path: The path of a request names its model.
    """

    time: str = ""
    shapes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    time_unit: str = ""
    stream: str = ""
    model: str = ""
    client: str = ""
    took: str = ""
    took_unit: str = ""
    by_path: bool = False

    @property
    def named(self) -> set[str]:
        dims = {dim for names in self.shapes.values() for dim in names if not dim.isdecimal()}
        names = {self.time, *dims, self.stream, self.model, self.client, self.took}
        return names - {""}


def requests_of_log(
    paths: Sequence[Path], columns: LogColumns, making: Making | None = None
) -> Iterator[LoggedRequest]:
    """The requests in logs.

    Args:
        columns: Where a log has times, shapes and names.
        making: Receives notes about the times, and about lines that are left out.

    Raises:
        SpecError: A file cannot be read, a row is wrong, or no row has the columns; with the place.
    """
    making = making or Making()
    clients, models = _Clients(), set[str]()
    for path in paths:
        for place, row, model, time in _requests(path, columns, making):
            models.add(model)
            took_s = _took_s(row, time, columns, place, making)
            labels = {"stream": columns.stream, "model": columns.model}
            content: dict[str, Any] = {key: str(row[name]) for key, name in labels.items() if name}
            if columns.by_path and model:
                content["model"] = model
            if columns.client:
                content["client"] = clients.name(str(row[columns.client]))
            if columns.shapes:
                content["shapes"] = {
                    name: [_dim(row, dim, place) for dim in shape]
                    for name, shape in columns.shapes.items()
                }
            at_s = time_s(row[time.name], time.name, columns.time_unit or time.unit, place)
            yield LoggedRequest(at_s, content, place, took_s)
    if columns.by_path and models == {""}:
        making.note_of_all(_NO_MODEL)
    if len(names := sorted(models - {""})) > 1 and not (columns.by_path or columns.model):
        making.note_of_all(f"the log is of {listed(names)}: --named tells them apart")


def _requests(
    path: Path, columns: LogColumns, making: Making
) -> Iterator[tuple[str, Row, str, TimeColumn]]:
    """Place, row, model and time column of each row that is an inference, as far as it shows."""
    refusal, count, lacking = None, 0, 0
    for number, row in _with_paths(path, making, columns):
        place = f"{path}:{number}:1"
        request = call_of(row)
        if request.left_out:
            making.note(request.left_out, place)
            continue
        try:
            _refuse_lacking(columns, row, place)
            time = _time_column(columns, row, place, making)
        except SpecError as error:
            refusal, lacking = refusal or error, lacking + 1
            if lacking >= MOST_BEFORE and not count:
                raise refusal from None
            continue
        count += 1
        yield place, row, request.model, time
    if refusal is not None and not count:
        raise refusal
    making.note_lines(_LACKING, lacking)


def _with_paths(path: Path, making: Making, columns: LogColumns) -> Iterator[tuple[int, Row]]:
    """The rows with the path of a request, if any has one: others are messages of the server.

    Where the user names the duration of a request, requests are the rows that have it.
    """
    waiting, with_path = list[tuple[int, Row]](), bool(columns.took)
    rows = rows_of(path, making)
    for number, row in rows:
        if columns.took or has_path(row):
            if not with_path:
                first = waiting[0][0] if waiting else 0
                making.note_lines(NO_REQUEST, len(waiting), f"{path}:{first}:1")
                waiting, with_path = [], True
            yield number, row
        elif with_path:
            making.note_line(NO_REQUEST, path, number)
        elif len(waiting) < MOST_BEFORE:
            waiting.append((number, row))
        else:
            yield from waiting
            yield number, row
            yield from rows
            return
    if not with_path:
        yield from waiting


#: A note on requests with the time of the answer but without a duration.
_OF_THE_ANSWER = (
    "the time is that of the answer where nginx wrote the log (Apache writes when a request came), "
    "and the log does not say how long that took: the gaps are those of the answers; log "
    "$request_time too"
)
_AS_OF_NGINX = (
    "request_time is how long a request took until its time, as nginx writes it, and each is put "
    "back by that; --took names another column"
)
_NO_MODEL = (
    "no path names a model, as those of gRPC do not: --named tells nothing apart; --model names a "
    "column that does"
)
_AS_LIKELY = "{time} is taken for the time of a request; --time names another column"
_AS_DATED = (
    "the lines have none of the usual formats: the first date of each is taken for the time of its "
    "request, though it may be that of the answer"
)
_LACKING = "without the columns that requests have, left out"


class _Clients:
    """Names of clients; a number replaces a name that may be an address."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def name(self, given: str) -> str:
        if "address" not in without_address(given):
            return given[:80]
        return f"client {self._numbers.setdefault(given, len(self._numbers) + 1)}"


def _refuse_lacking(columns: LogColumns, row: Row, place: str) -> None:
    if not (lacking := sorted(columns.named - row.keys())):
        return
    names = column_names(row, place)
    near = in_brackets(lacking[0], names)
    raise SpecError(
        plain(f"{place}: there is no column {lacking[0]!r}{near}; the columns are {listed(names)}")
    )


def _time_column(columns: LogColumns, row: Row, place: str, making: Making) -> TimeColumn:
    known = known_time(row, columns.time)
    if columns.time:
        return known or TimeColumn(columns.time)
    if known is not None:
        return known
    likely = [] if DATED in row else likely_times(row)
    if len(likely) == 1 and has_path(row):
        making.note_of_all(_AS_LIKELY.format(time=likely[0].name))
        return likely[0]
    if DATED in row:
        making.note_of_all(_AS_DATED)
        return TimeColumn(DATED)
    names = listed(column_names(row, place))
    message = f"{place}: no column is known to say when a request came; the columns are {names}"
    options = [
        f"--time {one.name}" + ("" if one.unit == "s" else f" --time-unit {one.unit}")
        for one in likely
    ]
    hint = f"name it: {listed(options, ' or ')}" if options else "name it with --time COLUMN"
    raise SpecError(plain(message), plain(hint))


def _took_s(row: Row, time: TimeColumn, columns: LogColumns, place: str, making: Making) -> float:
    """Seconds between a request and its logged time, as far as known; ``making`` gets a note."""
    if columns.took:
        took_s = length_s(row[columns.took], columns.took_unit or "s")
        if took_s is None:
            public = without_address(row[columns.took])
            raise SpecError(plain(f"{place}: {columns.took} is not a duration: {public}"))
        return took_s
    if time.came:
        return 0.0
    took_s = length_s(row.get(time.took or "request_time"), time.took_unit)
    if time.took and took_s is None:
        making.note(_OF_THE_ANSWER)
    elif not time.took and took_s:
        making.note_of_all(_AS_OF_NGINX)
    elif not time.took and (length := length_column(row)):
        making.note_of_all(
            f"if {time.name} is when a request was answered, {length} may say how long it took: "
            f"--took {length} with its --took-unit puts each back to when it came"
        )
    return took_s or 0.0


def _dim(row: Mapping[str, Any], dim: str, place: str) -> int:
    if dim.isdecimal():
        return int(dim)
    length = finite(row[dim])
    if length is None or length != int(length) or length < 1:
        public = without_address(row[dim])
        raise SpecError(plain(f"{place}: {dim} is not a dimension of 1 or more: {public}"))
    return int(length)
