"""Writes a recording from logs and traces: a line per request, sorted by time.

Lines wait on disk until all are read, so that their content may be larger than memory.
"""

from __future__ import annotations

import json
import os
import secrets
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import Times, too_long
from tuner.plain import plain
from tuner.spec.units import count_text, digits
from tuner.writing import explained


@dataclass(frozen=True)
class LoggedRequest:
    """A request from a log or a trace.

    Attributes:
        at_s: Time of the request, or of its answer.
        row: Its line, without a time.
        place: Where it was read, as file, line and column.
        took_s: Seconds from the request to ``at_s``; 0 if ``at_s`` is the time of the request.
    """

    at_s: float
    row: dict[str, Any]
    place: str = ""
    took_s: float = 0.0


@dataclass
class Making:
    """The result of making a recording, with notes for the user.

    Attributes:
        requests: Number of lines written.
        length_s: Time from the first to the last request.
        notes: Sentences, each with the number of requests that it is about; 0: all of them.
        lines: Sentences about lines of a log, each with their number.
        places: By sentence about what is left out, the place of the first.
    """

    requests: int = 0
    length_s: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def note(self, sentence: str, place: str = "") -> None:
        self.notes[sentence] = self.notes.get(sentence, 0) + 1
        if place:
            self.places.setdefault(sentence, place)

    def note_of_all(self, sentence: str) -> None:
        self.notes[sentence] = 0

    def note_line(self, sentence: str, path: Path, line: int) -> None:
        self.note_lines(sentence, place=f"{path}:{line}:1")

    def note_lines(self, sentence: str, number: int = 1, place: str = "") -> None:
        if number:
            self.lines[sentence] = self.lines.get(sentence, 0) + number
            self.places.setdefault(sentence, place)

    @property
    def left_out(self) -> list[str]:
        """What is left out and why, with count and first place; the most frequent first."""
        counts = [
            (notes[sentence], f"{count_text(notes[sentence], noun)}: {sentence}", place)
            for noun, notes in (("request", self.notes), ("line", self.lines))
            for sentence, place in self.places.items()
            if sentence in notes
        ]
        counts.sort(key=lambda one: -one[0])
        return [f"{text} (the first at {place})" for _, text, place in counts]


#: Most reasons why nothing is left to record.
_MOST_REASONS = 3
#: Seed for spreading requests whose times are whole seconds.
_SPREAD_SEED = 0


def spread(at_s: Times) -> tuple[Times, float]:
    """Spreads a log's times at random within their resolution; the times, and that resolution.

    The resolution is whole seconds, or a multiple of them, such as a minute. It is 0, and the times
    stay as they are, for finer times, and if no two requests have the same time.
    """
    integers = at_s.size > 1 and bool(np.all(at_s == np.floor(at_s)))
    distinct = np.unique(at_s)
    if not integers or distinct.size == at_s.size:
        return at_s, 0.0
    step_s = 1.0
    if distinct.size >= _ENOUGH_TIMES:
        step_s = float(np.gcd.reduce((distinct - distinct[0]).astype(np.int64)))
    return at_s + step_s * np.random.default_rng(_SPREAD_SEED).random(at_s.size), step_s


#: This many times are not all multiples of two seconds by chance.
_ENOUGH_TIMES = 16


def make_recording(
    requests: Iterable[LoggedRequest], path: Path, making: Making, *, of_a_log: bool = False
) -> None:
    """Writes the requests sorted by time, with times that count from the first request.

    The file at ``path`` is the old one or the complete new one.

    Args:
        making: Receives the number of requests, their length, and notes.
        of_a_log: Times may be whole seconds, which are then spread.

    Raises:
        SpecError: There are fewer than two requests, or one comes more than `MOST_S` after another.
        EnvironmentNotReadyError: The file cannot be written.
    """
    unfinished = path.with_name(f".tune-{secrets.token_hex(8)}.tmp")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with TemporaryFile(dir=path.parent) as file, unfinished.open("wb") as lines:
                rows = _stored(requests, file)
                making.requests = len(rows.at_s)
                if making.requests < 2:
                    raise _too_few(making)
                at_s, resolution_s = _times(rows, making) if of_a_log else (rows.at_s, 0.0)
                at_s = at_s - rows.took_s
                due_s = at_s - float(at_s.min())
                header = [f'"resolution_s": {resolution_s}'] if resolution_s else []
                for number in np.argsort(at_s, kind="stable").tolist():
                    due = f'"due_s": {round(float(due_s[number]), 6)}'
                    lines.write(f"{{{', '.join([due, *header])}".encode() + rows.read(number))
                    header = []  # only the first line has it
                lines.flush()
                os.fsync(lines.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    making.length_s = float(due_s.max())


@dataclass(frozen=True)
class _Rows:
    """The requests in the order in which they were read, with the ends of their lines in a file."""

    file: IO[bytes]
    at_s: Times
    took_s: Times
    ends: Sequence[int]

    def read(self, number: int) -> bytes:
        """The line of a request, from the end of its time on."""
        start = self.ends[number - 1] if number else 0
        self.file.seek(start)
        return self.file.read(self.ends[number] - start)


def _stored(requests: Iterable[LoggedRequest], file: IO[bytes]) -> _Rows:
    at_s, took_s, ends = array("d"), array("d"), array("q")
    first = last = None
    for one in requests:
        first = one if first is None or one.at_s < first.at_s else first
        last = one if last is None or one.at_s > last.at_s else last
        _refuse_apart(first, last)
        row = json.dumps(one.row, ensure_ascii=False)[1:]
        text = f"{', ' * bool(one.row)}{row}\n"
        file.write(text.encode(errors="backslashreplace"))  # halves of surrogates
        at_s.append(one.at_s)
        took_s.append(one.took_s)
        ends.append(file.tell())
    return _Rows(file, np.array(at_s), np.array(took_s), ends)


def _too_few(making: Making) -> SpecError:
    what = "one request" if making.requests else "no request"
    message = f"there is {what} to record, and a recording needs two"
    return SpecError(
        plain("; ".join([message, *making.left_out[:_MOST_REASONS]])),
        "tune record --help lists the formats that it reads",
    )


def _times(rows: _Rows, making: Making) -> tuple[Times, float]:
    """The times of a log, spread within their resolution, and that resolution; see `spread`."""
    at_s, resolution_s = spread(rows.at_s)
    if resolution_s:
        making.note_of_all(_spread_note(resolution_s))
    elif step_s := _even_step_s(at_s):
        making.note_of_all(_SAMPLES.format(step=digits(step_s)))
    return at_s, resolution_s


def _spread_note(resolution_s: float) -> str:
    what, step = "whole seconds", "a second"
    if resolution_s > 1.0:
        step = f"{digits(resolution_s)} s"
        what = f"multiples of {step}"
    return (
        f"times are {what}: spread within {step} by chance (seed {_SPREAD_SEED}), so bursts within "
        f"{step} are not the log's: the recording serves latency SLOs of {digits(resolution_s)} s "
        "or more; log milliseconds, as nginx's $msec, for shorter ones"
    )


def _even_step_s(at_s: Times) -> float:
    """The gap between times that all have the same one, as samples do; 0 for requests."""
    gaps = np.diff(np.sort(at_s))
    even = gaps.size + 1 >= _ENOUGH_TIMES and float(np.ptp(gaps)) < 1e-3
    return float(gaps[0]) if even and gaps[0] >= 1.0 else 0.0


_SAMPLES = (
    "one line comes each {step} s, as samples of a metric do: a line is taken for one request; of "
    "rates, write the highest as workload.arrivals.rate"
)


def _refuse_apart(first: LoggedRequest, last: LoggedRequest) -> None:
    if long := too_long(last.at_s - first.at_s):
        places = " and ".join(filter(None, (first.place, last.place)))
        raise SpecError(
            f"{places or 'the last request'}: {long}",
            "name the unit of a log's times with --time-unit, or leave out requests of another "
            "time",
        )


def entries_at(
    entries: Iterable[dict[str, Any]], times_s: Iterator[float]
) -> Iterator[LoggedRequest]:
    """Entries of perf_analyzer's inputs, one after the other, at these times."""
    for entry, at_s in zip(entries, times_s, strict=False):
        yield LoggedRequest(at_s, {"inputs": {n: v for n, v in entry.items() if n != "model"}})
