"""How well measurements repeat, and what that lets a confirmation prove. Pure statistics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tuner.confirm.interim import ANALYSES, InterimAnalyses
from tuner.measurement.measurement import Measurement
from tuner.run.confirmation import Repeat, RunNoise
from tuner.score.capacity import Bracket
from tuner.score.point import Point

#: No confirmation is shorter (the spec's own bound), and none longer is recommended: longer
#: windows or a larger gain are the better way out.
LEAST_ROUNDS, MOST_ROUNDS = 3, 10
#: Gains below this are not worth a change on any machine.
LEAST_GAIN = 0.01
#: Share of runs in which an existing gain should be found.
POWER = 0.8
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


def provable_gain(deviation: float, rounds: int, min_gain: float) -> float:
    """The true gain that a confirmation recognises in `POWER` of its runs.

    A gain is recognised where the lower end of the interval of n rounds' logarithms of ratios is
    above ``min_gain``: where ``(mean - log(1 + min_gain)) / (s / sqrt(n))``, a noncentral t
    statistic, exceeds Student's t. This is for the last look, with ``n`` twice the rounds: the
    first one hardly ever finds a gain of this size. Source: any text on the power of the t test;
    Johnson and Welch, Applications of the non-central t-distribution (1940).

    Args:
        deviation: Standard deviation of the logarithm of a round's ratio of two configs.
        rounds: At the first look.
        min_gain: What a change must be worth.
    """
    from scipy.special import nctdtrinc, stdtrit

    count = rounds * ANALYSES
    error = InterimAnalyses(rounds).error(count)
    least = float(stdtrit(count - 1, 1.0 - error / 2))
    ahead = float(nctdtrinc(count - 1, 1.0 - POWER, least))  # in standard errors
    return math.expm1(math.log1p(min_gain) + ahead * deviation / math.sqrt(count))


def worth_of(min_gain: float) -> float:
    """A gain that a confirmation should hardly ever miss: what a change must be worth, twice."""
    return math.expm1(2.0 * math.log1p(min_gain))


def rounds_needed(deviation: float, min_gain: float) -> int | None:
    """Fewest rounds whose `provable_gain` is no more than is worth it; None above `MOST_ROUNDS`."""
    for rounds in range(LEAST_ROUNDS, MOST_ROUNDS + 1):
        if provable_gain(deviation, rounds, min_gain) <= worth_of(min_gain):
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


def advice(deviation: float, now: Settings, max_window_s: float) -> Advice:
    """The cheapest change that lets a gain of twice ``min_gain`` be confirmed as a rule.

    Rounds, then longer windows, then a larger ``min_gain``. Noise is assumed to fall with the
    square root of the window (independent stretches). Noise between one start of the server and
    the next does not fall with it, so after lengthening the window the noise should be measured
    again.

    Args:
        deviation: Standard deviation of the logarithm of a round's ratio of two configs.
        now: What the spec says.
        max_window_s: The longest window it allows.
    """
    proved = provable_gain(deviation, now.rounds, now.min_gain)
    first = (
        f"A round's ratio of two configs varies by {deviation:.1%} (standard deviation): "
        f"{rounds_text(now.rounds)} confirm a gain of {proved:.1%} in {POWER:.0%} of runs."
    )
    wanted = f"a gain of {worth_of(now.min_gain):.1%}, twice min_gain"
    rounds = rounds_needed(deviation, now.min_gain)
    if rounds is not None and rounds <= now.rounds:
        return Advice(now, (first, f"That is no more than {wanted}: keep all."))
    if rounds is not None:
        said = f"For {wanted}, it takes {rounds_text(rounds)}."
        return Advice(Settings(now.window_s, rounds, now.min_gain), (first, said))

    def with_window(factor: int) -> int | None:
        return rounds_needed(deviation / math.sqrt(factor), now.min_gain)

    factor = _smallest(lambda f: with_window(f) is not None, now.window_s, max_window_s)
    if factor is not None:
        longer = Settings(factor * now.window_s, with_window(factor) or MOST_ROUNDS, now.min_gain)
        said = (
            f"{MOST_ROUNDS} rounds are not enough for {wanted}: windows {factor} times as long and "
            f"{rounds_text(longer.rounds)} would, if noise falls with the square root of the "
            "window; measure it again with them."
        )
        return Advice(longer, (first, said))
    return _larger(deviation, now, first)


def rounds_text(rounds: int) -> str:
    """``3 rounds (6 if those are inconclusive)``."""
    return f"{rounds} rounds ({rounds * ANALYSES} if those are inconclusive)"


def _smallest(good: Callable[[int], bool], window_s: float, max_window_s: float) -> int | None:
    factors = [f for f in (2, 4, MOST_WINDOWS) if f * window_s <= max_window_s]
    return next((f for f in factors if good(f)), None)


def _larger(deviation: float, now: Settings, first: str) -> Advice:
    """A ``min_gain`` of which twice can be confirmed; more rounds would bring little."""
    rounds = max(now.rounds, min(2 * LEAST_ROUNDS, MOST_ROUNDS))
    # provable_gain is worth_of where log(1 + min_gain) is what noise adds to it
    noise = math.log1p(provable_gain(deviation, rounds, 0.0))
    gain = max(LEAST_GAIN, math.ceil(100.0 * math.expm1(noise)) / 100.0)
    said = (
        f"A gain of twice min_gain = {now.min_gain:.1%} can rarely be confirmed here, even with "
        f"{MOST_ROUNDS} rounds or with the longest windows: with min_gain = {gain:.0%} "
        f"{rounds_text(rounds)} confirm {worth_of(gain):.1%}."
    )
    return Advice(Settings(now.window_s, rounds, gain), (first, said))


def noise_of(repeats: Iterable[Repeat]) -> RunNoise | None:
    """From what a run measured again; None when nothing was measured twice."""
    same_load: dict[tuple[str, float], list[Measurement]] = defaultdict(list)
    rounds: dict[tuple[str, int], list[Point]] = defaultdict(list)
    for repeat in repeats:
        if repeat.of_soak:
            continue  # another window, and chosen by what the one before showed
        point = repeat.point
        same_load[repeat.candidate_key, point.level].append(point.measurement)
        rounds[repeat.candidate_key, repeat.round].append(point)
    capacities: dict[str, list[float]] = defaultdict(list)
    for (candidate, _), points in rounds.items():
        bracket = Bracket.of(points)
        capacity = bracket.capacity()
        if capacity is not None and bracket.ceiling is not None:
            capacities[candidate].append(capacity)
    throughput = spread([[m.throughput_infer_per_s for m in g] for g in same_load.values()])
    p99 = spread([[m.p99_latency_us for m in g] for g in same_load.values()])
    between = spread(capacities.values())
    if not throughput.count and not between.count:
        return None
    return RunNoise(throughput.count, throughput.cv, p99.cv, between.count, between.cv)
