"""The results of a live comparison so far, kept in a file so that it can be run in slots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Self

from tuner.confirm.rounds import Entrant
from tuner.score.capacity import Bracket, Probe, capacity_level, steepness
from tuner.score.ratio import Ratio, mean_with_interval, paired_ratio
from tuner.search.budget import StopReason
from tuner.space.candidate import Candidate


@dataclass(frozen=True)
class Shown:
    """The stored result of one load level."""

    level: float
    passed: bool
    served_per_s: float | None
    slo_utilisation: float | None
    undecided: bool = False

    @classmethod
    def of(cls, probe: Probe) -> Self:
        served, used = probe.served_per_s, probe.slo_utilisation
        return cls(probe.level, probe.passed, served, used, probe.undecided)


#: What each config showed in one round, by its key.
Round = Mapping[str, tuple[Shown, ...]]


@dataclass(frozen=True)
class Settings:
    """Settings shared by all searches of a comparison; ``seed`` is for proposals and arrivals."""

    model: str = "emulated-accelerator"
    minutes: float = 3.0
    window_s: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """One trial, and what the search held after it.

    Attributes:
        seconds: Since the search began.
        candidate: In the canonical form of the space.
        measurements: Loads it was measured at; ``disturbed`` of them while something else ran.
        goodput: What it held within every SLO, inferences per second; None for nothing, or for
            a lost race.
        level: Where its measurements put its capacity, requests per second; None likewise.
        held: Number of the trial that was the incumbent then.
    """

    seconds: float
    number: int
    candidate: Candidate
    state: str
    measurements: int
    disturbed: int
    goodput: float | None
    level: float | None
    held: int | None

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "candidate": self.candidate.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "candidate": Candidate.from_json(data["candidate"])})


@dataclass(frozen=True)
class LiveSearch:
    """One strategy's search on the real server, trials by number.

    ``seconds`` are from its beginning to its end, ``choosing_s`` of them spent on proposals.
    """

    strategy: str
    seconds: float
    choosing_s: float
    ended: StopReason
    steps: tuple[Step, ...]

    @property
    def winner(self) -> Step | None:
        """The trial it held at its end; None when no config met the SLOs."""
        return self.held_after(self.steps[-1]) if self.steps else None

    def held_after(self, step: Step) -> Step | None:
        return None if step.held is None else self.steps[step.held]

    def to_json(self) -> dict[str, Any]:
        steps = [s.to_json() for s in self.steps]
        return {**self.__dict__, "ended": self.ended.name, "steps": steps}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        steps = tuple(Step.from_json(s) for s in data["steps"])
        return cls(**{**data, "ended": StopReason[data["ended"]], "steps": steps})


@dataclass(frozen=True)
class Comparison:
    """Searches by strategy, and the rounds in which their winners were measured again.

    Attributes:
        machine: Facts and versions; empty before anything was measured.
    """

    settings: Settings
    machine: Mapping[str, Any] = field(default_factory=dict)
    searches: Mapping[str, LiveSearch] = field(default_factory=dict)
    rounds: tuple[Round, ...] = ()

    def with_search(self, search: LiveSearch) -> Comparison:
        """Adds a search. Another winner discards the rounds: all are measured side by side."""
        added = replace(self, searches={**self.searches, search.strategy: search})
        same = added.entrants().keys() == self.entrants().keys()
        return added if same else replace(added, rounds=())

    def with_round(self, found: Round) -> Comparison:
        return replace(self, rounds=(*self.rounds, found))

    @property
    def current(self) -> Step | None:
        """The current config, from the first search that measured what it sustains."""
        if "current" not in self.machine:
            return None
        key = Candidate.from_json(self.machine["current"]).key
        steps = (step for s in self.searches.values() for step in s.steps)
        own = [step for step in steps if step.candidate.key == key]
        return next((step for step in own if step.level is not None), next(iter(own), None))

    def entrants(self) -> dict[str, Entrant]:
        """The current config and each distinct winner, by key, as far as they met the SLOs.

        Each begins at its capacity as measured by the rounds so far, or else by the first search
        that held it.
        """
        steps = [self.current, *(s.winner for s in self.searches.values())]
        found: dict[str, Entrant] = {}
        for step in steps:
            if step is not None and step.level is not None:
                key = step.candidate.key
                found.setdefault(key, Entrant(step.candidate, self._expected(key, step.level)))
        return found

    def _expected(self, key: str, searched: float) -> float:
        measured = self.capacities(key)
        return geometric_mean(measured) if measured else searched

    def capacities(self, key: str) -> list[float]:
        """For each round, the load at which the config begins to miss an SLO."""
        rounds = [r[key] for r in self.rounds if key in r]
        slope = steepness(rounds)
        return [capacity_level(probes, slope) for probes in rounds]

    def remeasured(self, key: str) -> Ratio | None:
        """Mean over the rounds with its 95 % interval, requests per second."""
        found = self.capacities(key)
        return mean_with_interval(found) if found else None

    def stood(self, key: str) -> float | None:
        """The load that met every SLO in every round; None when there was none."""
        floors = [Bracket.of(r[key]).floor for r in self.rounds if key in r]
        levels = [floor.level for floor in floors if floor is not None]
        return min(levels) if levels and len(levels) == len(floors) else None

    def ratio(self, key: str, other: str) -> Ratio | None:
        """What the one sustains relative to the other, by pairs of the same round."""
        pair = self.capacities(key), self.capacities(other)
        return paired_ratio(*pair) if all(pair) else None

    def goodput(self, step: Step) -> float | None:
        """The re-measured goodput, or the search's own score if there is none."""
        again = self.remeasured(step.candidate.key)
        return step.goodput if again is None else again.estimate


def read(path: Path) -> Comparison | None:
    """None when there is no file."""
    if not path.exists():
        return None
    data = json.loads(path.read_text())
    return Comparison(
        settings=Settings(**data["settings"]),
        machine=data["machine"],
        searches={s["strategy"]: LiveSearch.from_json(s) for s in data["searches"]},
        rounds=tuple(
            {key: tuple(Shown(**p) for p in probes) for key, probes in found.items()}
            for found in data["rounds"]
        ),
    )


def write(path: Path, comparison: Comparison) -> None:
    """Replaces the whole file; each search and each round is a line of it."""
    rounds = [{k: [asdict(p) for p in ps] for k, ps in r.items()} for r in comparison.rounds]
    searches = [s.to_json() for s in comparison.searches.values()]
    parts = {
        "settings": json.dumps(asdict(comparison.settings)),
        "machine": json.dumps(comparison.machine),
        "searches": "[\n" + ",\n".join(map(json.dumps, searches)) + "\n]",
        "rounds": "[\n" + ",\n".join(map(json.dumps, rounds)) + "\n]",
    }
    text = ",\n".join(f'"{name}": {part}' for name, part in parts.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(f"{{{text}}}\n")
    new.replace(path)
