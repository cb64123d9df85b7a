"""Tables of real measurements: how they are stored and read.

A table is a file of JSON lines. The first says which machine and programs it comes from, each of
the others holds one config under several loads. Latencies of single requests are not stored.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.measurement.measurement import Measurement
from tuner.space.candidate import Candidate

TABLES = Path(__file__).parent / "tables"
#: Fields that say nothing once the programs are gone, or follow from others.
_LEFT_OUT = ("command", "warnings", "restarts", "slices")
_DIGITS = 6
#: Repeats from this number on were measured in windows as long as a run's own.
LONG = 100


@dataclass(frozen=True)
class Recording:
    """One config measured once: ``points`` by ascending load.

    Attributes:
        repeat: 0 for the recording every config has, from 1 on for repeats, see also `LONG`.
        deployment: How it came onto the server.
        seconds: Deployment and measurements together.
    """

    candidate: Candidate
    repeat: int
    points: tuple[Measurement, ...]
    deployment: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Table:
    """``machine``: facts and versions, as `Programs` knows them."""

    machine: Mapping[str, Any]
    recordings: tuple[Recording, ...]

    def firsts(self) -> dict[str, Recording]:
        """The recording every config has, by candidate key."""
        return {r.candidate.key: r for r in self.recordings if r.repeat == 0}

    def of(self, key: str) -> list[Recording]:
        return [r for r in self.recordings if r.candidate.key == key]


def spec_path(name: str) -> Path:
    """The spec whose space a table covers."""
    return TABLES / f"{name}.yaml"


def growing_path(name: str) -> Path:
    """The file a table is recorded to; `pack` makes the one that is kept."""
    return TABLES / f"{name}.jsonl"


def read_table(name: str) -> Table:
    """Reads a table, packed or still growing."""
    return parse_table(_lines(growing_path(name)))


def parse_table(lines: Iterator[str]) -> Table:
    """A table from its lines.

    Raises:
        ValueError: There is no first line.
    """
    first = next(lines, None)
    if first is None:
        raise ValueError("the table is empty: record it with record_table.py")
    machine = json.loads(first)["machine"]
    return Table(machine, tuple(_recording(json.loads(x), machine["cores"]) for x in lines))


def pack(name: str) -> Path:
    """Replaces the growing file by its compressed form, which is what is kept."""
    growing = growing_path(name)
    packed = _packed(growing)
    packed.write_bytes(gzip.compress(growing.read_bytes(), 9, mtime=0))
    growing.unlink()
    return packed


def unpack(name: str) -> Path:
    """The growing file, from the compressed one where there is only that, or empty."""
    growing = growing_path(name)
    if not growing.exists():
        packed = _packed(growing)
        growing.write_bytes(gzip.decompress(packed.read_bytes()) if packed.exists() else b"")
    return growing


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Adds a line that is still there after a crash."""
    with path.open("a") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())


def line_of(recording: Recording) -> dict[str, Any]:
    return {
        "candidate": recording.candidate.to_json(),
        "repeat": recording.repeat,
        "deployment": recording.deployment,
        "seconds": round(recording.seconds, 2),
        "points": [_plain(p) for p in recording.points],
    }


def _packed(growing: Path) -> Path:
    return growing.with_suffix(".jsonl.gz")


def _lines(growing: Path) -> Iterator[str]:
    packed = _packed(growing)
    if growing.exists():
        with growing.open() as file:
            yield from file
    elif packed.exists():
        with gzip.open(packed, "rt") as file:
            yield from file


def _recording(line: Mapping[str, Any], cores: int) -> Recording:
    return Recording(
        candidate=Candidate.from_json(line["candidate"]),
        repeat=line["repeat"],
        points=tuple(_measurement(p, cores) for p in line["points"]),
        deployment=line["deployment"],
        seconds=line["seconds"],
    )


def _plain(measurement: Measurement) -> dict[str, Any]:
    """What differs from a field's default."""
    defaults = {f.name: f.default for f in dataclasses.fields(Measurement)}
    data = measurement.to_json()
    kept = {k: v for k, v in data.items() if k not in _LEFT_OUT and v != defaults[k]}
    kept["host"] = {k: v for k, v in data["host"].items() if v is not None}
    kept["server"] = data["server"]
    return {k: _rounded(v) for k, v in kept.items()}


def _measurement(data: Mapping[str, Any], cores: int) -> Measurement:
    host = {"cores": cores, **data["host"]}
    return Measurement.from_json({"warnings": (), "command": (), **data, "host": host})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(v) for v in value]
    return value
