"""A measured grid of a composed space: how it is stored, and what it says of a config."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import mean
from typing import Any, Self

from tuner.space.candidate import Candidate


@dataclass(frozen=True)
class Cell:
    """One config measured once.

    Attributes:
        capacity: Load up to which it meets every SLO, requests per second; 0 for none.
        round: 0 for the measurement every config has; from 1 on those made again, in turn.
        alone: The model that was asked by itself; empty where all were served together.
        loads: Each with whether it met every SLO.
        seconds: Deployment and measurements together.
    """

    candidate: Candidate
    capacity: float
    round: int
    alone: str
    loads: tuple[tuple[float, bool], ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "candidate": self.candidate.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        loads = tuple((level, passed) for level, passed in data["loads"])
        return cls(**{**data, "candidate": Candidate.from_json(data["candidate"]), "loads": loads})


@dataclass
class Grid:
    """The file of a grid; it is added to line by line, so that it can be made in slots."""

    path: Path
    cells: list[Cell]

    @classmethod
    def read(cls, path: Path, machine: Mapping[str, Any]) -> Self:
        """Begins the file where there is none.

        Raises:
            ValueError: It was begun on another machine, or with other programs.
        """
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _append(path, {"machine": machine})
        first, *lines = path.read_text().splitlines()
        begun = json.loads(first)["machine"]
        if machine and begun != json.loads(json.dumps(machine)):
            raise ValueError(f"{path} was begun with {begun}, this is {machine}")
        return cls(path, [Cell.from_json(json.loads(line)) for line in lines])

    def add(self, cell: Cell) -> None:
        _append(self.path, cell.to_json())
        self.cells.append(cell)

    def firsts(self, alone: str = "") -> dict[Candidate, float]:
        """What each config stood when it was measured first."""
        return {c.candidate: c.capacity for c in self.cells if c.round == 0 and c.alone == alone}

    def rounds(self) -> dict[Candidate, list[float]]:
        """What configs stood in turn, on fresh servers."""
        found: dict[Candidate, list[float]] = {}
        for cell in self.cells:
            if cell.round:
                found.setdefault(cell.candidate, []).append(cell.capacity)
        return found

    def worth(self) -> dict[Candidate, float]:
        """Of each config the mean of its rounds, or its first measurement where there are none."""
        return self.firsts() | {c: mean(found) for c, found in self.rounds().items()}


def owners(candidates: Sequence[Candidate]) -> list[str]:
    """The models whose fields are searched."""
    return sorted({owner for c in candidates for owner in c.models})


def one_by_one(
    worth: Mapping[Candidate, float], start: Candidate, min_gain: float
) -> Iterator[tuple[tuple[str, ...], Candidate, int]]:
    """Model after model, in each order: the best of its configs beside what the others have by now.

    Yields:
        The order, where it ends, and how many configs were measured on the way.
    """
    for order in permutations(owners(list(worth))):
        now, tried = start, {start}
        for owner in order:
            rivals = [c for c in worth if _others(c, owner) == _others(now, owner)]
            tried.update(rivals)
            best = max(rivals, key=lambda c: worth[c])
            if worth[best] > worth[now] * (1.0 + min_gain):
                now = best
        yield order, now, len(tried)


def _others(candidate: Candidate, owner: str) -> dict[str, Any]:
    return {name: dict(fields) for name, fields in candidate.models.items() if name != owner}


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())
