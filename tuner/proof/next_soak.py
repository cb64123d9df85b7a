"""Which load a config is soaked at next, by what its soaks so far and its rounds tell.

Pure functions. Simulated over queues of known capacity, whose rounds show up to 1.6 times what
lasts: `benchmarks/claims/soaks.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, geometric_mean

from tuner.proof.contender import Contender
from tuner.proof.entrants import ProofRules
from tuner.record.confirmation import Soaked
from tuner.score.capacity import NEAR, NoResult, Probe, saturated, steepness
from tuner.score.judge import tail_slo
from tuner.score.late_share import CONFIDENCE
from tuner.score.next_load import STEEP, StepRule, next_load

#: Loads that one config is soaked at, at least, where time is short.
FEWEST_SOAKS = 3
#: Below the first two loads that failed, where the latency says nothing.
LOWER = StepRule(first=0.30, least=0.04)
#: Below a failed load by no more than this factor, whatever its latency was.
FARTHEST = 1.6
#: Below a third one, or below the first where rounds were measured on other CPUs: this share of it
#: at most. So many misses show that rounds and misses say little of what lasts.
NEXT_SHARE = 0.75
#: Where the soaks tell of a capacity so much lower (a logarithm), the rounds were of another one.
CONTRADICTS = 0.1
#: Half way from a load that held to one that missed is worth a soak if that is so much higher.
WORTH = 1.15
#: Standard deviations of the half of an estimate that is uncertain.
_HALF = NormalDist().inv_cdf(CONFIDENCE) / 2.0


def lower_load(
    failed: Sequence[Probe],
    tried: Sequence[Soaked],
    rounds: Contender,
    rules: ProofRules,
    least: float,
) -> float | None:
    """A load below those that ``failed``, likely to hold as far as they tell, from ``least`` on."""
    last, levels = failed[-1], rules.plan.levels
    if rules.plan.listed is not None:
        lower = (level for level in rules.plan.listed if least <= level < last.level)
        return max(lower, default=None)
    step = next_load(failed, levels, LOWER)
    if step is None:
        return None
    if not saturated(last) and not isinstance(last, NoResult):
        likely = _likely(tried, rounds, rules)
        nearest = last.level / (1.0 + LOWER.least)
        step = step if likely is None else min(max(likely, last.level / FARTHEST), nearest)
    if len(failed) >= FEWEST_SOAKS or rules.shared_soak:
        step = min(step, NEXT_SHARE * last.level)
    level = levels.nearest(max(step, least))
    return level if level < last.level else None


def higher_load(tried: Sequence[Soaked], rules: ProofRules) -> float | None:
    """Half way from the load that held to those that missed; None where that gains too little."""
    missed = [s.level for s in tried if not s.sustained]
    if not missed or not tried[-1].sustained or not rules.plan.searches_rates:
        return None
    sustained = tried[-1].level
    level = rules.plan.levels.nearest(math.sqrt(sustained * min(missed)))
    return level if level >= WORTH * sustained else None


def surely_sustained(tried: Sequence[Soaked], rounds: Contender, rules: ProofRules) -> float:
    """The load that meets the SLO on the tail in the long run, with `CONFIDENCE`; else infinite.

    The capacity by the soaks is where their utilisation would be one. The rounds' mean capacity
    errs the other way: the geometric mean of the two is taken, less the error of the half that is
    uncertain.
    """
    error = _error(tried, rules)
    if not rounds.rounds or error is None:
        return math.inf
    slope = steepness([r.probes for r in rounds.rounds]) or STEEP
    by_rounds = geometric_mean(rounds.levels())
    by_soaks = _capacities(tried, slope)
    both = math.sqrt(by_rounds * geometric_mean(by_soaks or [by_rounds]))
    return both * math.exp(-_HALF * error / slope)


def _likely(tried: Sequence[Soaked], rounds: Contender, rules: ProofRules) -> float | None:
    """The same for the next load: each soak weighs as much as the rounds.

    Where the soaks contradict the rounds they count alone. None where they do not tell.
    """
    error, slope = _error(tried, rules), _slope(rounds)
    by_soaks = [math.log(level) for level in _capacities(tried, slope)]
    if error is None or not by_soaks or not rounds.rounds:
        return None
    by_rounds = math.log(geometric_mean(rounds.levels()))
    alone = by_rounds - fmean(by_soaks) > CONTRADICTS
    middle = fmean(by_soaks if alone else [by_rounds, *by_soaks])
    return math.exp(middle - _HALF * error / slope)


def _slope(rounds: Contender) -> float:
    """The power of the load with which the latency rises, near its bound."""
    return max(steepness([r.probes for r in rounds.rounds]) or STEEP, STEEP)


def _capacities(tried: Sequence[Soaked], slope: float) -> list[float]:
    """Loads at which the utilisation of each missed soak would be one."""
    points = (s.point for s in tried if not saturated(s.point))
    near = [p for p in points if (p.slo_utilisation or 0.0) >= NEAR[0]]
    return [p.level * (p.slo_utilisation or 1.0) ** (-1.0 / slope) for p in near]


def _error(tried: Sequence[Soaked], rules: ProofRules) -> float | None:
    """Relative standard error of the last soak's percentile; None where it is not known.

    From n independent requests with an exponential tail, the quantile q of the latency has one of
    sqrt(q / (1 - q) / n) / -ln(1 - q). That of the capacity is smaller by the power of the load
    with which the latency rises.
    """
    slo = tail_slo(rules.slos)
    quantile = 0.0 if slo is None else slo.metric.quantile or 0.0
    late = tried[-1].late
    if not quantile or late is None:
        return None
    return math.sqrt(quantile / (1.0 - quantile) / late.effective) / -math.log1p(-quantile)
