"""A recording: one JSON object a line for each request, with the time it was due.

Only times and places of lines are kept, so that a recording may be larger than memory; what a
request carries is read from its line when it is replayed.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import MOST_S, Times, finite, too_long
from tuner.load.traffic.repeats import Order
from tuner.plain import plain
from tuner.regular import open_regular
from tuner.spec.mistakes import MAX_LISTED, in_brackets, listed, listing

#: What a line may hold beside its time: what the request carries, in one of three ways, and whose
#: it is.
CARRIED = ("inputs", "shapes", "entry")
KEYS = ("due_s", *CARRIED, "stream", "model", "client", "resolution_s")
HINT = "docs/recordings.md says what a line holds; tune record makes such a file"
#: From the first to the last request there is at least so much time.
LEAST_S = 1.0
#: No line is longer.
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Label:
    """Whose a request is, as far as its line says."""

    stream: str = ""
    model: str = ""


#: The inputs that a line gives, each with its dimensions; none where it does not say these.
LineShapes = tuple[tuple[str, tuple[int, ...]], ...]


class LineError(ValueError):
    """What is wrong with a line, and at which column."""

    def __init__(self, message: str, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.column = message, column

    @classmethod
    def at(cls, text: str, key: str, message: str) -> LineError:
        """At a key of the line."""
        return cls(message, max(text.find(f'"{key}"'), 0) + 1)


@dataclass(frozen=True)
class Recording:
    """Requests in the order in which they were due.

    Attributes:
        due_s: From the first one's.
        offsets: Where each one's line begins in the file.
        owners: The label of each, as its place in ``labels``.
        shapes: What the inputs of a request may be like, as far as lines say it.
        forms: The shapes of each, as their place in ``shapes``.
        contents: What each carries, equal where that is the same to the byte; `UNKNOWN` where its
            line does not say it.
        clients: Who sent requests; "" for those whose line does not say it.
        callers: The client of each, as its place in ``clients``.
        resolution_s: Of the times that it was made from: finer ones are by chance. 0: as recorded.
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
        """After so long it begins again: the last gap is an average one."""
        count = self.due_s.size
        return float(self.due_s[-1]) * count / (count - 1)

    @property
    def rate_per_s(self) -> float:
        """Mean requests per second."""
        return self.due_s.size / self.length_s

    def place(self, number: int, column: int = 1) -> str:
        return f"{self.path}:{number + 1}:{column}"

    def read(self, numbers: Iterable[int]) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """The lines of requests, by number from 0, each with its text.

        Raises:
            SpecError: The file is not what it was.
        """
        with opened(self.path) as file:
            for number in numbers:
                file.seek(int(self.offsets[number]))
                try:
                    text = file.readline(MOST_BYTES).decode()
                    yield number, text, parse_line(text)
                except (UnicodeDecodeError, LineError) as error:
                    message = f"{self.place(number)}: changed since tune read it first"
                    raise SpecError(message, "leave a recording alone while it is used") from error


@dataclass(frozen=True)
class RecordedStream:
    """The requests of one stream; ``numbers``: which of the recording's they are."""

    recording: Recording
    numbers: Order


def read_recording(path: Path) -> Recording:
    """Reads all of its times, and checks every line, without keeping what requests carry.

    Raises:
        SpecError: It cannot be read, or is not a recording, with the place of each bad line.
    """
    try:
        seen = path.stat()
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    return _read(path, seen.st_size, seen.st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, size: int, changed_ns: int) -> Recording:
    """``size`` and ``changed_ns``: a file that has changed is read again."""
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
                    message = f"{start}: requests are in the order in which they are due"
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
    """What a line says; raises `LineError`."""
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
            raise LineError.at(text, key, f"{key} is no name: {row[key]!r}")
    if "resolution_s" in row and finite(row["resolution_s"]) is None:
        message = f"resolution_s is no number of seconds: {row['resolution_s']!r:.80}"
        raise LineError.at(text, "resolution_s", message)
    if len(carried := [key for key in CARRIED if key in row]) > 1:
        message = f"{carried[0]} and {carried[1]} are given, and one of them is enough"
        raise LineError.at(text, carried[1], message)
    return row


def _seconds(text: str, row: Mapping[str, Any]) -> float:
    if "due_s" not in row:
        message = "due_s is missing: when the request was due, in seconds"
        raise LineError.at(text, "due_s", message)
    given = row["due_s"]
    due_s = finite(given) if type(given) in (int, float) else None
    if due_s is None:
        raise LineError.at(text, "due_s", f"due_s is no number of seconds: {given!r:.80}")
    return due_s


#: In place of what a request carries.
UNKNOWN = -1


def content_of_line(row: Mapping[str, Any]) -> bytes:
    """Equal for two requests of one model that carry the same; empty where that is not known."""
    given = {key: row[key] for key in ("inputs", "entry") if key in row}
    if not given:
        return b""
    text = json.dumps([row.get("model", ""), given], sort_keys=True)
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()


def shapes_of_line(row: Mapping[str, Any]) -> LineShapes:
    """What a line says of the shapes of its inputs, whether or not these fit the model."""
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
    """The stream of each request, as its place in ``models``: the model of each stream.

    Raises:
        SpecError: Requests belong to no stream, or none to one.
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
            raise SpecError(f"{recording.path}: none of its requests is of the stream {name}", HINT)
    return each


def _no_stream(label: Label, models: Mapping[str, str]) -> str:
    known = listed(f"{name} (model {model})" for name, model in models.items())
    given = [f"{key} {value!r}" for key, value in vars(label).items() if value]
    said = f"no one stream has {' and '.join(given)}" if given else "it names no stream"
    return plain(f"{said}; the spec's streams are {known}")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read; that it cannot be is a mistake of the spec."""
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
