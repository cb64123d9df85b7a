"""Tables of real measurements: how they are stored and read.

A table is a file of JSON lines. The first says which machine and programs it comes from, each of
the others holds one config under several loads. Latencies of single requests are not stored.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.measurement.measurement import Measurement
from tuner.record.earlier import with_data
from tuner.space.candidate import Candidate

TABLES = Path(__file__).parent / "tables"
#: Specs of several models; their tables are beside the others.
SERVED = Path(__file__).parent / "served_models"
#: Fields that are meaningless once the programs have ended, or follow from others.
_LEFT_OUT = ("command", "warnings", "warnings_data", "disturbances", "restarts", "slices")
_DIGITS = 6
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Measurement)}
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


def spec_path(name: str) -> Path:
    """The spec whose space a table covers."""
    return next(p for d in (TABLES, SERVED) if (p := d / f"{name}.yaml").exists() or d is SERVED)


def growing_path(name: str) -> Path:
    """The file a table is recorded to; `pack` makes the one that is kept."""
    return TABLES / f"{name}.jsonl"


def read_table(name: str) -> Table:
    """Reads a table, packed or still growing: what a replay can answer from."""
    return parse_table(lines_of(growing_path(name)))


def parse_table(lines: Iterator[str]) -> Table:
    """A table from its lines.

    Raises:
        ValueError: There is no first line.
    """
    first = next(lines, None)
    if first is None:
        raise ValueError("the table is empty: record it with record.py")
    machine = json.loads(first)["machine"]
    return Table(machine, tuple(recording_of(json.loads(line), machine) for line in lines))


def begun(growing: Path, machine: Mapping[str, Any]) -> tuple[Recording, ...]:
    """What a growing table holds; a new one is begun with this machine.

    Raises:
        ValueError: It was begun on another machine, or with other programs.
    """
    if not unpack(growing).stat().st_size:
        append(growing, {"machine": machine})
    table, now = parse_table(lines_of(growing)), json.loads(json.dumps(machine))
    if any(now.get(name) != was for name, was in table.machine.items()):
        raise ValueError(f"{growing} was begun with {dict(table.machine)}, this is {now}")
    return table.recordings


def pack(growing: Path) -> Path:
    """Replaces the growing file by its compressed form, which is what is kept."""
    packed = _packed(growing)
    packed.write_bytes(gzip.compress(growing.read_bytes(), 9, mtime=0))
    growing.unlink()
    return packed


def unpack(growing: Path) -> Path:
    """The growing file, from the compressed one where there is only that, or empty."""
    if not growing.exists():
        packed = _packed(growing)
        growing.write_bytes(gzip.decompress(packed.read_bytes()) if packed.exists() else b"")
    return growing


def lines_of(growing: Path) -> Iterator[str]:
    """The lines of a table, packed or still growing; none if there is neither."""
    packed = _packed(growing)
    if growing.exists():
        with growing.open() as file:
            yield from file
    elif packed.exists():
        with gzip.open(packed, "rt") as file:
            yield from file


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


def recording_of(line: Mapping[str, Any], machine: Mapping[str, Any]) -> Recording:
    return Recording(
        candidate=Candidate.from_json(line["candidate"]),
        repeat=line["repeat"],
        points=tuple(_measurement(p, machine.get("cores")) for p in line["points"]),
        deployment=line.get("deployment", ""),
        seconds=line["seconds"],
    )


def luck_of(candidate: Candidate) -> str:
    """What a config's luck is drawn from, so that replays repeat: its key in old tables."""
    models = {name: dict(fields) for name, fields in candidate.models.items()}
    alone = models.popitem()[1] if len(models) == 1 else {}
    stored = {"fields": alone, **({"models": models} if models else {})}
    stored["server_args"] = list(candidate.server_args)
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _packed(growing: Path) -> Path:
    return growing.with_suffix(".jsonl.gz")


def _plain(measurement: Measurement) -> dict[str, Any]:
    """The fields that differ from their defaults, of each stream too."""
    kept = _compact(measurement.to_json())
    if measurement.streams:
        kept["streams"] = {name: _compact(data) for name, data in kept["streams"].items()}
    return {k: _rounded(v) for k, v in kept.items()}


def _compact(data: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in data.items() if k not in _LEFT_OUT and v != _DEFAULTS.get(k, [])}
    if "host" in data:
        kept["host"] = {k: v for k, v in data["host"].items() if v is not None}
    kept["server"] = data["server"]
    return kept


def _measurement(data: Mapping[str, Any], cores: int | None) -> Measurement:
    return Measurement.from_json(with_data(_expanded(data, cores)))


def _expanded(data: Mapping[str, Any], cores: int | None) -> dict[str, Any]:
    host = {"cores": cores, **data["host"]}
    streams = {name: _expanded(figures, cores) for name, figures in data.get("streams", {}).items()}
    kept = {k: v for k, v in data.items() if k != "source"}  # only ever that of each request
    return {"command": (), **kept, "host": host, "streams": streams}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(v) for v in value]
    return value
