"""Makes a recording of what teams have: requests in any order become lines in that of their times.

Lines wait on disk until all are there, so that what they hold may be larger than memory.
"""

from __future__ import annotations

import json
import os
import secrets
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from tuner.errors import SpecError
from tuner.load.traffic.arrivals import Times, too_long
from tuner.writing import explained


@dataclass(frozen=True)
class LoggedRequest:
    """A request that was recorded elsewhere.

    Attributes:
        row: Its line, without a time.
        place: Where it was found, as file, line and column.
        took_s: It came so long before ``at_s``, which is when it was answered.
    """

    at_s: float
    row: dict[str, Any]
    place: str = ""
    took_s: float = 0.0


@dataclass
class Making:
    """What was made, and what a user should know of it.

    Attributes:
        requests: Lines that were written.
        notes: Sentences, each with the number of requests that it is about; 0: all of them.
    """

    requests: int = 0
    length_s: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)

    def note(self, sentence: str) -> None:
        self.notes[sentence] = self.notes.get(sentence, 0) + 1

    def note_of_all(self, sentence: str) -> None:
        self.notes[sentence] = 0


#: What requests are spread by whose times are whole seconds.
_SPREAD_SEED = 0


def spread(at_s: Times) -> tuple[Times, float]:
    """Times that are whole seconds, by chance within their second; and the resolution they had.

    0 for others, which are as they were. Where no second has two requests there is nothing to
    spread.
    """
    integers = at_s.size > 1 and bool(np.all(at_s == np.floor(at_s)))
    if not integers or np.unique(at_s).size == at_s.size:
        return at_s, 0.0
    return at_s + np.random.default_rng(_SPREAD_SEED).random(at_s.size), 1.0


def make_recording(
    requests: Iterable[LoggedRequest], path: Path, making: Making, *, of_a_log: bool = False
) -> None:
    """Writes the requests in the order of their times, which count from the first one's.

    ``making`` is told how many there are; ``path`` is the old file or the whole new one. Times
    ``of_a_log`` may be whole seconds, and are spread then.

    Raises:
        SpecError: There are fewer than two requests, or one comes more than `MOST_S` after another.
        EnvironmentNotReadyError: It cannot be written.
    """
    at_s, took_s, offsets, lengths = array("d"), array("d"), array("q"), array("q")
    unfinished = path.with_name(f".tune-{secrets.token_hex(8)}.tmp")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with TemporaryFile(dir=path.parent) as rows, unfinished.open("wb") as lines:
                first = last = None
                for one in requests:
                    first = one if first is None or one.at_s < first.at_s else first
                    last = one if last is None or one.at_s > last.at_s else last
                    _refuse_apart(first, last)
                    row = json.dumps(one.row, ensure_ascii=False)[1:]
                    text = row.encode(errors="backslashreplace") + b"\n"  # halves of surrogates
                    at_s.append(one.at_s)
                    took_s.append(one.took_s)
                    offsets.append(rows.tell())
                    lengths.append(len(text))
                    rows.write(text)
                if len(at_s) < 2:
                    what = "one request" if at_s else "no request"
                    message = f"there is {what} to record, and a recording needs two"
                    raise SpecError(message, "see tune record --help for what is read")
                at, resolution_s = spread(np.array(at_s)) if of_a_log else (np.array(at_s), 0.0)
                if resolution_s:
                    making.note_of_all(_SPREAD)
                at = at - np.array(took_s)
                first_s, header = float(at.min()), b'"resolution_s": 1.0' if resolution_s else b""
                for number in np.argsort(at, kind="stable").tolist():
                    rows.seek(offsets[number])
                    rest = rows.read(lengths[number])
                    parts = [b"", header] if header else [b""]
                    parts += [] if rest == b"}\n" else [rest]
                    due_s = round(float(at[number]) - first_s, 6)
                    end = b"}\n" if rest == b"}\n" else b""
                    lines.write(b'{"due_s": ' + str(due_s).encode() + b", ".join(parts) + end)
                    header = b""  # the first line says it
                lines.flush()
                os.fsync(lines.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    making.requests, making.length_s = len(at_s), float(at.max()) - first_s


_SPREAD = (
    f"times are whole seconds: spread within their second by chance (seed {_SPREAD_SEED}), so "
    "bursts within a second are not the log's: the recording serves latency SLOs of 1 s or more; "
    "log milliseconds, as nginx's $msec, for shorter ones"
)


def _refuse_apart(first: LoggedRequest, last: LoggedRequest) -> None:
    if long := too_long(last.at_s - first.at_s):
        places = " and ".join(filter(None, (first.place, last.place)))
        raise SpecError(
            f"{places or 'the last request'}: {long}",
            "name the unit of the times of a log with --time-unit; or leave out requests of "
            "another time",
        )


def entries_at(
    entries: Iterable[dict[str, Any]], times_s: Iterator[float]
) -> Iterator[LoggedRequest]:
    """Entries of perf_analyzer's inputs, one after the other at these times."""
    for entry, at_s in zip(entries, times_s, strict=False):
        yield LoggedRequest(at_s, {"inputs": {n: v for n, v in entry.items() if n != "model"}})
