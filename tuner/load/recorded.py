"""Load that was measured before: answers from a table instead of a server.

For unit tests and for benchmarks of the search, which need thousands of measurements that
come at once and repeat exactly. Nothing here is put on any server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.errors import LoadFailedError, ServerGoneError, TrialError
from tuner.load.generator import Window
from tuner.load.measurement import Arrivals, LoadPoint, Measurement

_FAILURES: Mapping[str, type[TrialError]] = {
    "load failed": LoadFailedError,
    "server gone": ServerGoneError,
}


@dataclass(frozen=True)
class RecordedFailure:
    """A load point that gave no result; ``kind`` is "load failed" or "server gone"."""

    load: LoadPoint
    kind: str
    message: str


#: What happened at the load points of one candidate; several at one level are its noise.
Record = Sequence[Measurement | RecordedFailure]


@dataclass(frozen=True)
class RecordedLoad:
    """Answers for one candidate; see `tuner.load.generator.LoadGenerator`.

    The recorded level nearest to the one asked for (by ratio) answers, as it was measured:
    nothing is interpolated. Of several recordings at that level the seed picks one.
    """

    record: Record

    def measure(self, load: LoadPoint, window: Window, seed: int) -> Measurement:
        same = [entry for entry in self.record if entry.load.arrivals is load.arrivals]
        if not same:
            raise LoadFailedError(f"nothing is recorded for {load.arrivals.value} arrivals")
        level = min({e.load.level for e in same}, key=lambda x: abs(math.log(x / load.level)))
        there = [entry for entry in same if entry.load.level == level]
        found = there[seed % len(there)]
        if isinstance(found, RecordedFailure):
            raise _FAILURES[found.kind](found.message)
        if found.wall_s > window.deadline_s:
            raise LoadFailedError(f"recorded to take {found.wall_s:g} s, above the deadline")
        return replace(found, seed=seed)


def read_table(path: Path) -> dict[str, Record]:
    """Recordings by candidate key.

    The file is JSON: ``{KEY: [entry, ...]}``; an entry is a `Measurement` as it is stored, or
    ``{"load": ..., "failed": KIND, "message": ...}``.
    """
    table = json.loads(path.read_text())
    return {key: tuple(map(_entry, entries)) for key, entries in table.items()}


def write_table(table: Mapping[str, Record], path: Path) -> None:
    path.write_text(json.dumps({k: [_plain(e) for e in v] for k, v in table.items()}, indent=1))


def _entry(data: Mapping[str, Any]) -> Measurement | RecordedFailure:
    if "failed" not in data:
        return Measurement.from_json(data)
    load = LoadPoint(Arrivals(data["load"]["arrivals"]), data["load"]["level"])
    return RecordedFailure(load, data["failed"], data["message"])


def _plain(entry: Measurement | RecordedFailure) -> dict[str, Any]:
    if isinstance(entry, Measurement):
        return entry.to_json()
    load = {"arrivals": entry.load.arrivals.value, "level": entry.load.level}
    return {"load": load, "failed": entry.kind, "message": entry.message}
