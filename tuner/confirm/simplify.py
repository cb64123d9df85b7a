"""The simplest config that is as good: changes that make no measurable difference are undone.

Each changed field of the winner is put back to its old value in turn, those that others depend on
last. If the config without the change meets every SLO at the winner's load in every round, the
change was not needed and stays undone while the next field is tried. A field that matters costs
one measurement, one that does not as many as there are rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.confirm.confirm import Bench, Role, Row, Rules
from tuner.errors import TrialError
from tuner.score.judge import passes, value_of
from tuner.score.point import Point
from tuner.space.candidate import Candidate, FieldValue
from tuner.spec.objective import Goal, Objective

DYNAMIC_BATCHING = "dynamic_batching"


@dataclass(frozen=True)
class PutBack:
    """One change tried without.

    Attributes:
        field: ModelConfig path, or the server argument.
        with_change: The objective with it, in its own unit.
        without_change: And without it; None when that could not be served.
        kept: The change makes a difference and stays.
    """

    field: str
    with_change: float | None
    without_change: float | None
    kept: bool

    def to_json(self) -> dict[str, Any]:
        both = self.with_change is not None and self.without_change is not None
        return {
            "field": self.field,
            "with": self.with_change,
            "without": self.without_change,
            "difference": self.without_change - self.with_change if both else None,  # type: ignore[operator]
            "kept": self.kept,
        }


@dataclass(frozen=True)
class Simplified:
    """The config to write; ``points`` are its own, one a round, when a change was undone."""

    candidate: Candidate
    points: tuple[Point, ...]
    tried: tuple[PutBack, ...]


@dataclass(frozen=True)
class Winner:
    """The confirmed config, the load it proved itself at, and its measurements there."""

    candidate: Candidate
    level: float
    points: tuple[Point, ...]


def simplified(
    bench: Bench,
    winner: Winner,
    current: Candidate,
    rules: Rules,
    allowed: Callable[[Candidate], bool],
) -> Simplified:
    """Tries each change of ``winner`` against ``current`` on its own.

    ``allowed`` says whether Triton would load a candidate; one that it would not is not tried.
    """
    best = winner
    tried: list[PutBack] = []
    for name, without in _changes(winner.candidate, current):
        candidate = without(best.candidate)
        if candidate in (best.candidate, current) or not allowed(candidate):
            continue
        points = _measured(bench, candidate, best.level, rules)
        holds = len(points) == rules.rounds and all(_as_good(rules, p, best) for p in points)
        before, after = _least(rules.objective, best.points), _least(rules.objective, points)
        tried.append(PutBack(name, before, after, kept=not holds))
        if holds:
            best = Winner(candidate, best.level, tuple(points))
    return Simplified(best.candidate, best.points, tuple(tried))


def _changes(
    winner: Candidate, current: Candidate
) -> Iterator[tuple[str, Callable[[Candidate], Candidate]]]:
    """Name of each change with the function that undoes it; what others need comes last."""
    if winner.server_args != current.server_args:
        yield (
            " ".join(winner.server_args) or "server arguments",
            lambda c: _without_args(c, current),
        )
    paths = [p for p, v in winner.fields.items() if current.fields.get(p) != v]
    for path in sorted(paths, key=lambda p: (-p.count("."), p == DYNAMIC_BATCHING, p)):
        if path != "response_cache.enable":  # goes with the server's argument
            yield path, lambda c, p=path: _without_field(c, p, current)  # type: ignore[misc]


def _without_field(candidate: Candidate, path: str, current: Candidate) -> Candidate:
    fields: dict[str, FieldValue] = dict(candidate.fields)
    value = current.fields.get(path)
    fields[path] = value
    if value is None:  # what lies inside an absent message is absent too
        fields = {p: v for p, v in fields.items() if not p.startswith(f"{path}.")}
    return Candidate(fields, candidate.server_args)


def _without_args(candidate: Candidate, current: Candidate) -> Candidate:
    fields = dict(candidate.fields)
    if "response_cache.enable" in fields:
        fields["response_cache.enable"] = current.fields.get("response_cache.enable")
    return Candidate(fields, current.server_args)


def _measured(bench: Bench, candidate: Candidate, level: float, rules: Rules) -> list[Point]:
    """Up to ``rules.rounds`` points; ends with the first that misses an SLO."""
    points: list[Point] = []
    try:
        for number in range(rules.rounds):
            bench.deploy(candidate, fresh=True)
            point = bench.measure(level, rules.seed + number)
            rules.record(Row(number, 0, Role.SIMPLER, candidate, point))
            points.append(point)
            if not passes(point.slo):
                break
    except TrialError:
        return points[:0]
    return points


def _as_good(rules: Rules, point: Point, winner: Winner) -> bool:
    """It meets the SLOs, and is no worse than the winner in its least round by what counts."""
    value = _objective(rules.objective, point)
    least = _least(rules.objective, winner.points)
    if not passes(point.slo) or value is None or least is None:
        return False
    if rules.objective.goal is Goal.MAXIMIZE_GOODPUT:
        return value >= least * (1.0 - rules.min_gain)
    return value <= least * (1.0 + rules.min_gain)


def _least(objective: Objective, points: Sequence[Point]) -> float | None:
    """The objective in the round that was worst by it; None without a reading in each."""
    values = [_objective(objective, p) for p in points]
    known = [v for v in values if v is not None]
    if not known or len(known) < len(values):
        return None
    return min(known) if objective.goal is Goal.MAXIMIZE_GOODPUT else max(known)


def _objective(objective: Objective, point: Point) -> float | None:
    if objective.metric is not None:
        return value_of(objective.metric, point.measurement)
    if point.in_time_infer_per_s is None or passes(point.slo):
        return point.measurement.throughput_infer_per_s
    return point.in_time_infer_per_s
