"""A recording: a JSON object per line and request, with the time at which it was due.

Only times and positions of lines stay in memory, so a recording may be larger than memory; a line's
inputs are read when the request is replayed.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import MOST_S, Times, finite, too_long
from tuner.load.traffic.repeats import Order
from tuner.load.traffic.source_files import opened
from tuner.plain import plain
from tuner.spec.mistakes import MAX_LISTED, in_brackets, listed, listing

#: Keys of a line beside its time: the inputs, in one of three forms, and the names of stream,
#: model and client.
CARRIED = ("inputs", "shapes", "entry")
KEYS = ("due_s", *CARRIED, "stream", "model", "client", "resolution_s")
HINT = "docs/recordings.md says what a line holds; tune record makes such a file"
#: Shortest time from the first to the last request.
LEAST_S = 1.0
#: Longest line.
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Label:
    """The stream and the model of a request, as far as its line names them."""

    stream: str = ""
    model: str = ""


#: Inputs in a line, with their dimensions; empty if the line gives no dimensions.
LineShapes = tuple[tuple[str, tuple[int, ...]], ...]


class LineError(ValueError):
    """What is wrong with a line, and the column."""

    def __init__(self, message: str, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.column = message, column

    @classmethod
    def at(cls, text: str, key: str, message: str) -> LineError:
        """The error at a key of the line."""
        return cls(message, max(text.find(f'"{key}"'), 0) + 1)


@dataclass(frozen=True)
class Recording:
    """Requests in the order in which they were due.

    Attributes:
        due_s: When each request was due, from the first one.
        offsets: Position of each request's line in the file.
        labels: Distinct labels.
        owners: Index of each request's label.
        shapes: Distinct shapes of requests, as far as lines give them.
        forms: Index of each request's shapes.
        contents: Number of each request's inputs, equal for inputs that are equal byte for byte;
            `UNKNOWN` if the line does not give them.
        clients: Names of clients; "" for requests without one.
        callers: Index of each request's client.
        resolution_s: Resolution of the original times; finer digits are random. 0: as recorded.
    """

    path: Path
    due_s: Times
    offsets: Order
    labels: tuple[Label, ...]
    owners: Order
    shapes: tuple[LineShapes, ...]
    forms: Order
    contents: Order
    clients: tuple[str, ...]
    callers: Order
    resolution_s: float = 0.0

    @property
    def length_s(self) -> float:
        """Time after which a replay starts over: the recording and one mean gap."""
        count = self.due_s.size
        return float(self.due_s[-1]) * count / (count - 1)

    @property
    def rate_per_s(self) -> float:
        """Mean requests per second."""
        return self.due_s.size / self.length_s

    def place(self, number: int, column: int = 1) -> str:
        return f"{self.path}:{number + 1}:{column}"

    def read(self, numbers: Iterable[int]) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Number, line as text, and line as an object of these requests, numbered from 0.

        Raises:
            SpecError: The file has changed.
        """
        with opened(self.path) as file:
            for number in numbers:
                file.seek(int(self.offsets[number]))
                try:
                    text = file.readline(MOST_BYTES).decode()
                    yield number, text, parse_line(text)
                except (UnicodeDecodeError, LineError) as error:
                    message = f"{self.place(number)}: changed since tune first read it"
                    raise SpecError(
                        message, "do not change a recording while it is in use"
                    ) from error


@dataclass(frozen=True)
class RecordedStream:
    """The requests of one stream; ``numbers``: their numbers in the recording."""

    recording: Recording
    numbers: Order


def read_recording(path: Path) -> Recording:
    """Reads all times and checks every line, without keeping the inputs.

    Raises:
        SpecError: The file cannot be read, or is not a recording; with the place of each bad line.
    """
    try:
        seen = path.stat()
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    return _read(path, seen.st_size, seen.st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, size: int, changed_ns: int) -> Recording:
    """``size`` and ``changed_ns``: part of the cache key, so that a changed file is read again."""
    del size, changed_ns
    due_s, offsets, owners = array("d"), array("q"), array("i")
    labels: dict[Label, int] = {}
    forms, shapes = array("i"), dict[LineShapes, int]()
    contents, known = array("q"), dict[bytes, int]()
    callers, clients = array("i"), dict[str, int]()
    resolution_s = 0.0
    wrong: list[str] = []
    wrong_count = offset = 0
    with opened(path) as file:
        while line := file.readline(MOST_BYTES):
            try:
                text, row = _row(line)
                if due_s and row["due_s"] < due_s[-1]:
                    start = f"due_s {row['due_s']:.15g} is before the line above, {due_s[-1]:.15g}"
                    message = f"{start}: sort requests by the time at which they are due"
                    raise LineError.at(text, "due_s", message)
            except LineError as error:
                wrong_count += 1
                if wrong_count <= MAX_LISTED:
                    place = f"{path}:{len(due_s) + wrong_count}:{error.column}"
                    wrong.append(plain(f"{place}: {error.message}"))
            else:
                due_s.append(row["due_s"])
                offsets.append(offset)
                label = Label(row.get("stream", ""), row.get("model", ""))
                owners.append(labels.setdefault(label, len(labels)))
                forms.append(shapes.setdefault(shapes_of_line(row), len(shapes)))
                carried = content_of_line(row)
                contents.append(known.setdefault(carried, len(known)) if carried else UNKNOWN)
                callers.append(clients.setdefault(row.get("client", ""), len(clients)))
                resolution_s = max(resolution_s, row.get("resolution_s", 0.0))
            offset += len(line)
    if wrong:
        raise SpecError(listing(wrong, wrong_count), HINT)
    times = np.array(due_s)
    if times.size < 2 or due_s[-1] - due_s[0] < LEAST_S:
        what = {0: "no request", 1: "one request only"}.get(times.size, "less than a second")
        raise SpecError(f"{path}:1:1: there is {what} in the recording", HINT)
    if long := too_long(due_s[-1] - due_s[0]):
        late = int(times.searchsorted(due_s[0] + MOST_S, side="right"))
        raise SpecError(f"{path}:{late + 1}:1: due_s {due_s[late]:.15g}: {long}", HINT)
    columns = (offsets, owners, forms, contents, callers)
    places, whose, like, carries, by = (np.array(column, np.int64) for column in columns)
    return Recording(
        path=path,
        due_s=times - times[0],
        offsets=places,
        labels=tuple(labels),
        owners=whose,
        shapes=tuple(shapes),
        forms=like,
        contents=carries,
        clients=tuple(clients),
        callers=by,
        resolution_s=resolution_s,
    )


def _row(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise LineError("not UTF-8 text", error.start + 1) from error
    try:
        return text, parse_line(text)
    except LineError as error:
        if line.endswith(b"\n"):
            raise
        cut = "too long" if len(line) == MOST_BYTES else "cut off: the file is not whole"
        raise LineError(f"the line is {cut} ({error.message})", error.column) from error


def parse_line(text: str) -> dict[str, Any]:
    """The object in a line; raises `LineError`."""
    try:
        row = json.loads(text.rstrip("\r\n"))
    except json.JSONDecodeError as error:
        raise LineError(f"not JSON: {error.msg}", error.colno) from error
    except (RecursionError, ValueError) as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise LineError('not a request such as {"due_s": 0.5, "inputs": {...}}')
    for key in row:
        if key not in KEYS:
            message = f"unknown key {key!r}{in_brackets(key, KEYS)}"
            raise LineError.at(text, key, message)
    row["due_s"] = _seconds(text, row)
    for key in ("stream", "model", "client"):
        if key in row and not (isinstance(row[key], str) and row[key]):
            raise LineError.at(text, key, f"{key} is not a name: {row[key]!r}")
    if "resolution_s" in row and finite(row["resolution_s"]) is None:
        message = f"resolution_s is not a number of seconds: {row['resolution_s']!r:.80}"
        raise LineError.at(text, "resolution_s", message)
    if len(carried := [key for key in CARRIED if key in row]) > 1:
        message = f"{carried[0]} and {carried[1]} are both given, but a line takes one of them"
        raise LineError.at(text, carried[1], message)
    return row


def _seconds(text: str, row: Mapping[str, Any]) -> float:
    if "due_s" not in row:
        message = "due_s is missing: when the request was due, in seconds"
        raise LineError.at(text, "due_s", message)
    given = row["due_s"]
    due_s = finite(given) if type(given) in (int, float) else None
    if due_s is None:
        raise LineError.at(text, "due_s", f"due_s is not a number of seconds: {given!r:.80}")
    return due_s


#: In place of a request's inputs.
UNKNOWN = -1


def content_of_line(row: Mapping[str, Any]) -> bytes:
    """Bytes that are equal for two requests of a model with equal inputs; empty if unknown."""
    given = {key: row[key] for key in ("inputs", "entry") if key in row}
    if not given:
        return b""
    text = json.dumps([row.get("model", ""), given], sort_keys=True)
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()


def shapes_of_line(row: Mapping[str, Any]) -> LineShapes:
    """The shapes of inputs in a line, whether or not they fit the model."""
    given = row.get("shapes", row.get("inputs"))
    shapes = []
    for name, value in given.items() if isinstance(given, dict) else ():
        dims = value if "shapes" in row else [len(value)] if isinstance(value, list) else value
        dims = dims.get("shape") if isinstance(dims, dict) else dims
        if not isinstance(dims, list) or not all(type(dim) is int for dim in dims):
            return ()
        shapes.append((name, tuple(dims)))
    return tuple(shapes)


def streams_of(recording: Recording, models: Mapping[str, str]) -> Order:
    """The stream of each request, as an index into ``models``: the model of each stream.

    Raises:
        SpecError: A request belongs to no stream, or a stream has no request.
    """
    names, numbers = [*models], []
    for place, label in enumerate(recording.labels):
        fitting = [
            name
            for name, model in models.items()
            if label.stream in ("", name) and label.model in ("", model)
        ]
        if len(fitting) != 1:
            first = int(np.argmax(recording.owners == place))
            raise SpecError(f"{recording.place(first)}: {_no_stream(label, models)}", HINT)
        numbers.append(names.index(fitting[0]))
    each: Order = np.array(numbers, np.int64)[recording.owners]
    for number, name in enumerate(names):
        if number not in numbers:
            raise SpecError(f"{recording.path}: no request belongs to stream {name}", HINT)
    return each


def _no_stream(label: Label, models: Mapping[str, str]) -> str:
    known = listed(f"{name} (model {model})" for name, model in models.items())
    given = [f"{key} {value!r}" for key, value in vars(label).items() if value]
    said = f"no single stream has {' and '.join(given)}" if given else "it names no stream"
    return plain(f"{said}; the spec's streams are {known}")
