"""How well measurements repeat, and what that lets a confirmation prove. Pure statistics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.bench.evaluate import probe_of
from tuner.confirm.statistics import ERROR, half_width
from tuner.load.measurement import Measurement
from tuner.score.capacity import Bracket
from tuner.score.point import Point

#: No confirmation is shorter (the spec's own bound), and none longer is recommended: longer
#: windows or a larger gain are the better way out.
LEAST_ROUNDS, MOST_ROUNDS = 3, 10
#: Gains below this are not worth a change on any machine.
LEAST_GAIN = 0.01
#: Longest window recommended, as a multiple of the present one.
MOST_WINDOWS = 8


@dataclass(frozen=True)
class Spread:
    """Repeats of the same thing: ``cv`` is the coefficient of variation, ``count`` the values.

    ``cv`` is None with fewer than two values of anything.
    """

    cv: float | None
    count: int


def spread(groups: Iterable[Sequence[float]]) -> Spread:
    """Coefficient of variation within groups, pooled over them.

    Square root of the mean squared deviation from each group's mean, relative to that mean, over
    the degrees of freedom of all groups together (each has its count minus one). Source: the
    pooled variance of any text on analysis of variance.
    """
    squares, freedom, count = 0.0, 0, 0
    for group in groups:
        if len(group) < 2 or (mean := math.fsum(group) / len(group)) <= 0.0:
            continue
        squares += math.fsum((value / mean - 1.0) ** 2 for value in group)
        freedom += len(group) - 1
        count += len(group)
    return Spread(math.sqrt(squares / freedom) if freedom else None, count)


def provable_gain(cv: float, rounds: int, looks: int = 1) -> float:
    """The half width of the interval of a ratio, as a gain: what noise alone may seem to be.

    Two configs are compared by the mean of n logarithms of ratios, each of two values with this
    coefficient of variation (small, so that it is the logarithm's deviation): half width
    ``h = t * sqrt(2) * cv / sqrt(n)`` with Student's t of n - 1 degrees of freedom, and
    ``exp(h) - 1`` as a gain. It is the interval of `tuner.confirm.statistics.paired_ratio`, at
    the last look, when there are ``n = rounds * looks``.
    """
    return math.expm1(half_width(math.sqrt(2.0) * cv, rounds * looks, ERROR / looks))


def rounds_needed(cv: float, min_gain: float, looks: int = 1) -> int | None:
    """Fewest rounds whose `provable_gain` is below ``min_gain``; None when `MOST_ROUNDS` do not do.

    Source: Law, Simulation Modeling and Analysis, fixed-sample-size procedure for an absolute
    error: the smallest n with ``t(n-1, 1-a/2) * sqrt(S^2/n) <= error``, S^2 from a pilot sample.
    """
    for rounds in range(LEAST_ROUNDS, MOST_ROUNDS + 1):
        if provable_gain(cv, rounds, looks) < min_gain:
            return rounds
    return None


@dataclass(frozen=True)
class Settings:
    """What a spec says, or should say: ``window_s`` is the length measurements really have."""

    window_s: float
    rounds: int
    min_gain: float


@dataclass(frozen=True)
class Advice:
    """Recommended settings, and why, one sentence each."""

    settings: Settings
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def advice(cv: float, now: Settings, max_window_s: float, looks: int = 1) -> Advice:
    """The cheapest change that lets ``min_gain`` be proved: rounds, then longer windows, then less.

    Noise is taken to fall with the square root of the window (independent stretches). What is
    only between one start of the server and the next does not fall with it, so a longer window is
    worth another look at the noise.
    """
    proved = provable_gain(cv, now.rounds, looks)
    first = (
        f"Capacity repeats within {cv:.1%} (coefficient of variation): "
        f"{rounds_text(now.rounds, looks)} tell a gain from nothing when it is above {proved:.1%}."
    )
    rounds = rounds_needed(cv, now.min_gain, looks)
    if rounds is not None and rounds <= now.rounds:
        return Advice(now, (first, f"That is below min_gain = {now.min_gain:.1%}: keep all."))
    if rounds is not None:
        said = f"For min_gain = {now.min_gain:.1%} it takes {rounds_text(rounds, looks)}."
        return Advice(Settings(now.window_s, rounds, now.min_gain), (first, said))

    def with_window(factor: int) -> int | None:
        return rounds_needed(cv / math.sqrt(factor), now.min_gain, looks)

    factor = _smallest(lambda f: with_window(f) is not None, now.window_s, max_window_s)
    if factor is not None:
        longer = Settings(factor * now.window_s, with_window(factor) or MOST_ROUNDS, now.min_gain)
        said = (
            f"{MOST_ROUNDS} rounds would not do for min_gain = {now.min_gain:.1%}: windows "
            f"{factor} times as long and {rounds_text(longer.rounds, looks)} would, if noise falls "
            "with the square root of the window; measure it again with them."
        )
        return Advice(longer, (first, said))
    return _less(cv, now, looks, first)


def rounds_text(rounds: int, looks: int) -> str:
    """``3 rounds (6 where they leave it open)``."""
    more = "" if looks == 1 else f" ({rounds * looks} where they leave it open)"
    return f"{rounds} rounds{more}"


def _smallest(good: Callable[[int], bool], window_s: float, max_window_s: float) -> int | None:
    factors = [f for f in (2, 4, MOST_WINDOWS) if f * window_s <= max_window_s]
    return next((f for f in factors if good(f)), None)


def _less(cv: float, now: Settings, looks: int, first: str) -> Advice:
    """A gain that can be proved, with rounds enough that more would bring little."""
    rounds = max(now.rounds, min(2 * LEAST_ROUNDS, MOST_ROUNDS))
    gain = max(LEAST_GAIN, math.ceil(100.0 * provable_gain(cv, rounds, looks)) / 100.0)
    said = (
        f"min_gain = {now.min_gain:.1%} cannot be proved here, neither with {MOST_ROUNDS} rounds "
        f"nor with the longest windows: {rounds_text(rounds, looks)} prove {gain:.0%}."
    )
    return Advice(Settings(now.window_s, rounds, gain), (first, said))


@dataclass(frozen=True)
class RunNoise:
    """How the repeats of a run's own confirmation spread.

    Attributes:
        repeats: Measurements of a config at a load at which it was measured more than once; each
            on another server, with other arrivals.
        rounds: Rounds whose capacity is known, of configs that have several.
    """

    repeats: int
    throughput_cv: float | None
    p99_cv: float | None
    rounds: int
    capacity_cv: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def noise_of(rows: Iterable[Mapping[str, Any]]) -> RunNoise | None:
    """From the rows of `confirmation.jsonl`; None when nothing was measured twice."""
    same_load: dict[tuple[str, float], list[Measurement]] = defaultdict(list)
    rounds: dict[tuple[str, int], list[Point]] = defaultdict(list)
    for row in rows:
        point = Point.from_json(row["point"])
        same_load[row["candidate_key"], point.measurement.load.level].append(point.measurement)
        rounds[row["candidate_key"], row["round"]].append(point)
    capacities: dict[str, list[float]] = defaultdict(list)
    for (candidate, _), points in rounds.items():
        bracket = Bracket.of([probe_of(p) for p in points])
        capacity = bracket.capacity()
        if capacity is not None and bracket.ceiling is not None:
            capacities[candidate].append(capacity)
    throughput = spread([[m.throughput_infer_per_s for m in g] for g in same_load.values()])
    p99 = spread([[m.p99_latency_us for m in g] for g in same_load.values()])
    between = spread(capacities.values())
    if not throughput.count and not between.count:
        return None
    return RunNoise(throughput.count, throughput.cv, p99.cv, between.count, between.cv)
