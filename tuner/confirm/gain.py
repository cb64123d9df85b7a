"""Two configs measured in the same rounds, compared round by round; and when that is looked at.

All looks at all candidates share one error (Bonferroni), so that the chance of any wrong "better"
is the stated one. After three rounds, Student's t with two degrees of freedom proves little but
large gains, whatever its share of the error; so later looks get more. Source: Lan and DeMets,
Discrete sequential boundaries for clinical trials (1983), on spending error unevenly.

How far a slow config is behind at least is shown by one load (`search_far_behind`). By the
utilisation law, no config answers more than the requests served at once divided by the time they
take (Denning and Buzen, The operational analysis of queueing network models, 1978), so a queue
grows. Once more requests are late than the percentile allows for the whole window, the SLO is
certainly missed (`tuner.load.watch.early_end`), there and at any higher load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from tuner.bench.again import EXPLAINS
from tuner.confirm.rounds import Contender, Round, disturbed_alike, search_round
from tuner.errors import TrialError
from tuner.score.capacity import NEAR, LevelRange, saturated
from tuner.score.judge import value_of
from tuner.score.point import Point
from tuner.score.ratio import ERROR, Ratio, paired_ratio, unequal_ratio
from tuner.spec.slo import Goal, Objective

#: The assumed standard deviation of the logarithm of a capacity between rounds, where one round is
#: too few to tell: one and a half times that of a config that sustains a hundred requests a second
#: (benchmarks/claims/README.md, What limits it).
ROUND_DEVIATION = 0.15
#: Fewer pairs of rounds than these have an interval too wide to tell anything.
FEW = 3


@dataclass(frozen=True)
class Gain:
    """How much better one config is than another in the rounds that both were measured in.

    Attributes:
        ratio: Of capacities (or of the minimised metric, the other way round); above 1 is better.
        means: What the ratio is of, the one and the other: geometric means over the rounds; None
            where the other was outclassed, since one rough round is no figure to print.
        rounds: Of each of them that count. Fewer of the other where it was outclassed.
        at_least: Only the ratio's lower end is told: the other was outclassed, or sustains less
            than its mean.
    """

    ratio: Ratio
    means: tuple[float, float] | None
    rounds: tuple[int, int]
    at_least: bool = False


def gain(own: Contender, other: Contender, objective: Objective, error: float) -> Gain | None:
    """The gain of ``own`` over ``other``; None if there is nothing to compare.

    That is so if they have no common round, or the other met no SLO at the load of a minimised
    metric.

    Only rounds count in which both were `disturbed_alike`. Where these are fewer than `FEW`, all
    do, and each end of the interval is moved by as much as the difference explains of it. For an
    outclassed ``other``, all rounds of each are compared, unpaired. ``error`` is that of the
    interval (`InterimAnalyses.error`).

    Raises:
        TrialError: The minimised metric was not measured in every round.
    """
    rounds = min(len(own.rounds), len(other.rounds))
    if not rounds:
        return None
    if objective.goal is Goal.MINIMIZE and not any(p.passed for p in other.points[:rounds]):
        return None
    if other.outclassed:
        one, two = own.capacities(), other.capacities()
        ratio = unequal_ratio(one, two, ROUND_DEVIATION, error)
        told = (geometric_mean(one), geometric_mean(two)) if other.at_most else None
        return Gain(ratio, told, (len(one), len(two)), at_least=True)
    pairs = [*zip(own.rounds[:rounds], other.rounds, strict=False)]
    counted = _counted(pairs)
    one, two = ([readings(s, objective)[i] for i in counted] for s in (own, other))
    if objective.goal is not Goal.MINIMIZE:  # what the other may sustain beyond is not known
        limited = [other.rounds[i].limit < math.inf for i in counted]
        one = [min(pair) if cut else pair[0] for *pair, cut in zip(one, two, limited, strict=True)]
    better, worse = (two, one) if objective.goal is Goal.MINIMIZE else (one, two)
    ratio = paired_ratio(better, worse, error)
    if not all(disturbed_alike(*pairs[i]) for i in counted):
        # What others took beside the other config feigns a gain; beside this one it hides one.
        more = [EXPLAINS * (b.taken_percent - a.taken_percent) / 100.0 for a, b in pairs]
        low, high = (max(0.0, 1.0 - max(0.0, end)) for end in (max(more), -min(more)))
        ratio = replace(ratio, low=low * ratio.low, high=ratio.high / high if high else math.inf)
    means = (geometric_mean(one), geometric_mean(two))
    return Gain(ratio, means, (len(counted), len(counted)), other.at_most)


def uneven_text(own: Contender, other: Contender) -> str:
    """What becomes of rounds in which others took more beside one; empty where there is none."""
    pairs = list(zip(own.rounds, other.rounds, strict=False))
    uneven = sum(not disturbed_alike(*pair) for pair in pairs)
    if not uneven or other.outclassed:
        return ""
    left_out = len(_counted(pairs)) < len(pairs)
    effect = "they do not count in the gain" if left_out else "the interval allows for it"
    return (
        f"in {uneven} of {len(pairs)} rounds others took more of the machine beside one of the two "
        f"configs, and again when it was repeated: {effect}"
    )


def _counted(pairs: Sequence[tuple[Round, Round]]) -> list[int]:
    """The rounds that were disturbed alike, or all of them where these are too few."""
    alike = [i for i, pair in enumerate(pairs) if disturbed_alike(*pair)]
    return alike if len(alike) >= min(len(pairs), FEW) else [*range(len(pairs))]


def readings(contender: Contender, objective: Objective) -> list[float]:
    """One value a round: the capacity, or the metric that is minimised, in its base unit.

    Raises:
        TrialError: The metric was not measured in every round.
    """
    metric = objective.metric
    if metric is None:
        return contender.capacities()
    values = [value_of(metric, p.measurement) for p in contender.points]
    if any(v is None or v <= 0 for v in values):
        raise TrialError(f"{metric.name} was not measured in every round")
    return [v for v in values if v is not None]


#: A comparison has at most this many times the rounds of its first look.
MOST = 2


@dataclass(frozen=True)
class InterimAnalyses:
    """The looks at the rounds of one comparison.

    Attributes:
        looks: The number of rounds that are over and the share of the error spent, in order.
        tests: Number of candidates that may be called better.
    """

    looks: tuple[tuple[int, float], ...]
    tests: int = 1

    @classmethod
    def of_confirmation(cls, rounds: int, tests: int = 1) -> InterimAnalyses:
        """For 3 rounds, looks after 3, 4, 5 and 6, spending 12, 16, 24 and 48 % of the error."""
        parts = {rounds + later: 1.0 / (rounds + 1 - later) for later in range(rounds + 1)}
        whole = sum(parts.values())
        return cls(tuple((done, part / whole) for done, part in parts.items()), tests)

    def due(self, rounds_done: int) -> bool:
        return any(rounds_done == done for done, _ in self.looks)

    def error(self, rounds_done: int) -> float:
        """The two-sided error of the interval that is looked at after this many rounds."""
        due = (share for done, share in self.looks if rounds_done <= done)
        return ERROR * next(due, self.looks[-1][1]) / self.tests


#: Every finalist sustains this many times the load of the current config, both in a round and in
#: the search: two servers, each with its own arrivals, would have to be wrong by that much.
OUTCLASSED = 3.0
#: The load is this many times the expected capacity, which is known from few requests.
ABOVE = 1.5
#: Only where a measurement at what is expected takes longer than this, in seconds.
LONG_S = 60.0


def search_far_behind(
    measure: Callable[[float], Point],
    expected: float,
    others: Sequence[float],
    levels: LevelRange,
    length_s: Callable[[float], float],
    sent: float = 0.0,
) -> Round:
    """A rough round, or one load that the config does not sustain, where that is enough to know.

    Args:
        expected: Capacity of the config.
        others: What the configs it is compared with are expected to sustain.
        sent: The highest load that was sent to any config.
    """
    above, known = levels.nearest(ABOVE * expected), list[Point]()
    far = all(other >= OUTCLASSED * above for other in others)
    if far and others and length_s(expected) > LONG_S and not levels.whole:
        known = [measure(above)]
        near = not saturated(known[0]) and (known[0].slo_utilisation or 0.0) < NEAR[1]
        if not (known[0].passed or known[0].undecided or near):
            return Round(tuple(known), missed=True)
    return search_round(measure, expected, levels, rough=True, known=known, sent=sent)
