"""The simplest config that is as good: changes that make no measurable difference are undone.

A response cache comes first. The winner without it is always measured, and it goes when it is not
missed; otherwise the smallest size is looked for that is within `CACHE_TOLERANCE` of the winner.

Then each changed field is put back to its old value in turn, those that others depend on last. If
the config without the change meets every SLO at the winner's load in every round, the change was
not needed and stays undone while the next field is tried. A field that matters costs one
measurement, one that does not as many as there are rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.confirm.confirm import Bench, Role, Row, Rules
from tuner.errors import TrialError
from tuner.score.judge import passes, value_of
from tuner.score.point import Point
from tuner.space import cache
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.words import bytes_text
from tuner.spec.objective import Goal, Objective

DYNAMIC_BATCHING = "dynamic_batching"
#: A cache is memory for nothing when less of it serves within this share of the goodput (or of the
#: metric that is minimised).
CACHE_TOLERANCE = 0.02


@dataclass(frozen=True)
class PutBack:
    """One change tried without.

    Attributes:
        field: ModelConfig path, or the server argument; of a cache the size tried instead.
        with_change: The objective with it, in its own unit, at the load of ``without_change``.
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
    cache_sizes: Sequence[int] = (),
) -> Simplified:
    """Tries each change of ``winner`` against ``current`` on its own.

    Args:
        bench: Measures.
        winner: The confirmed config.
        current: The one it beat.
        rules: As they were for the confirmation.
        allowed: Whether Triton would load a candidate; one that it would not is not tried.
        cache_sizes: Those the spec lets choose from, in bytes, in any order.
    """
    trials = _Trials(bench, rules, allowed)
    best = proved = _with_least_cache(trials, winner, current, cache_sizes)
    for name, without in _changes(best.candidate, current):
        candidate = without(best.candidate)
        if candidate in (best.candidate, current) or not allowed(candidate):
            continue
        # Against what was proved, not against the last that held: small losses must not add up.
        held = trials.tried_instead(name, candidate, proved, rules.min_gain, proved.level)
        best = held or best
    return Simplified(best.candidate, best.points, tuple(trials.tried))


def _with_least_cache(
    trials: _Trials, winner: Winner, current: Candidate, sizes: Sequence[int]
) -> Winner:
    """The winner with no cache, or the smallest, that is within `CACHE_TOLERANCE` of it.

    Goodput rises with the size, so the sizes are bisected. Each is compared with the winner
    itself: small losses must not add up.
    """
    _, size = cache.split_args(winner.candidate.server_args)
    if size is None:
        return winner
    off, level = _with_cache(winner.candidate, None), trials.level_for_caches(winner)
    without = trials.tried_instead(f"{cache.SIZE} off", off, winner, CACHE_TOLERANCE, level)
    if without is not None and off != current:  # that one has lost already
        return without
    best = winner
    smaller = sorted({s for s in sizes if s < size})
    low, high = 0, len(smaller)
    while low < high:
        middle = (low + high) // 2
        candidate = _with_cache(winner.candidate, smaller[middle])
        name = f"{cache.SIZE} {bytes_text(smaller[middle])}"
        held = trials.tried_instead(name, candidate, winner, CACHE_TOLERANCE, level)
        if held is None:
            low = middle + 1
        else:
            best, high = held, middle
    return best


class _Trials:
    """Simpler configs measured, and what came of each."""

    def __init__(self, bench: Bench, rules: Rules, allowed: Callable[[Candidate], bool]) -> None:
        self._bench = bench
        self._rules = rules
        self._allowed = allowed
        self.tried: list[PutBack] = []

    def level_for_caches(self, winner: Winner) -> float:
        """The least load that is within `CACHE_TOLERANCE` of what the winner stood."""
        stood = [p.measurement.load for p in winner.points]
        if self._rules.levels is None or not all(load.arrivals.open_loop for load in stood):
            return winner.level
        least = min(load.level for load in stood) * (1.0 - CACHE_TOLERANCE)
        return max(winner.level, self._rules.levels.nearest(least))

    def tried_instead(
        self, name: str, candidate: Candidate, best: Winner, tolerance: float, level: float
    ) -> Winner | None:
        """``candidate`` with its measurements, if it stands in for ``best`` in every round."""
        rules = self._rules
        points: list[Point] = []
        if self._allowed(candidate):
            points = _measured(self._bench, candidate, level, rules)
        bar = _bar(rules.objective, best, level)
        holds = len(points) == rules.rounds and all(
            _as_good(rules.objective, p, bar, tolerance) for p in points
        )
        after = _least(rules.objective, points)
        self.tried.append(PutBack(name, bar, after, kept=not holds))
        return Winner(candidate, best.level, tuple(points)) if holds else None


def _with_cache(candidate: Candidate, size: int | None) -> Candidate:
    rest, _ = cache.split_args(candidate.server_args)
    fields: dict[str, FieldValue] = dict(candidate.fields)
    fields[cache.ENABLE] = None if size is None else True
    return Candidate(fields, (*rest, *cache.server_args(size)))


def _changes(
    winner: Candidate, current: Candidate
) -> Iterator[tuple[str, Callable[[Candidate], Candidate]]]:
    """Name of each change with the function that undoes it; what others need comes last."""
    if not winner.server_args and current.server_args:
        yield "server arguments", lambda c: _without_args(c, current)
    paths = [p for p, v in winner.fields.items() if current.fields.get(p) != v]
    for path in sorted(paths, key=lambda p: (-p.count("."), p == DYNAMIC_BATCHING, p)):
        if path != cache.ENABLE:  # goes with the server's argument
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
    if cache.ENABLE in fields:
        fields[cache.ENABLE] = current.fields.get(cache.ENABLE)
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


def _bar(objective: Objective, winner: Winner, level: float) -> float | None:
    """The winner's objective in its least round, as far as it can be reached at this level."""
    least = _least(objective, winner.points)
    if least is None or objective.goal is Goal.MINIMIZE:
        return least
    measured = winner.points[0].measurement
    if not measured.load.arrivals.open_loop:
        return least
    return min(least, level * measured.batch_size)  # nothing serves more than it is offered


def _as_good(objective: Objective, point: Point, bar: float | None, tolerance: float) -> bool:
    """It meets the SLOs, and is no worse than the bar by what counts."""
    value = _objective(objective, point)
    if not passes(point.slo) or value is None or bar is None:
        return False
    if objective.goal is Goal.MINIMIZE:
        return value <= bar * (1.0 + tolerance)
    return value >= bar * (1.0 - tolerance)


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
