"""The load of the next soak of a config, from its soaks so far and its rounds.

Pure functions. `benchmarks/claims/soaks.py` simulates them on queues of known capacity, where
rounds show up to 1.6 times the load that lasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, geometric_mean

from tuner.proof.contender import Contender
from tuner.proof.entrants import ProofRules
from tuner.record.confirmation import Soak, Soaked
from tuner.score.capacity import NEAR, NoResult, Probe, level_at_bound, saturated, steepness
from tuner.score.judge import tail_slo
from tuner.score.late_share import CONFIDENCE
from tuner.score.next_load import STEEP, StepRule, next_load

#: Soaks of one config that are made although the time is over, unless one is sustained.
FEWEST_SOAKS = 3
#: Steps below the first two loads that failed, where their latency does not show the capacity.
LOWER = StepRule(first=0.30, least=0.04)
#: The next load is at least the failed one divided by this factor, whatever its latency was.
FARTHEST = 1.6
#: The next load is at most this share of the failed one after a third failure, or after the first
#: where rounds used other CPUs: then neither rounds nor misses predict well which load lasts.
NEXT_SHARE = 0.75
#: Where the logarithm of the capacity by the soaks is lower than that by the rounds by more than
#: this, the rounds do not count.
CONTRADICTS = 0.1
#: A load half way between a sustained and a missed one is worth a soak if it is at least this many
#: times the sustained one.
WORTH = 1.15
#: Standard deviations by which an estimate is lowered: the soaks, of which the error is known, are
#: half of the estimate.
_HALF = NormalDist().inv_cdf(CONFIDENCE) / 2.0


def lower_load(
    failed: Sequence[Probe],
    tried: Sequence[Soaked],
    rounds: Contender,
    rules: ProofRules,
    least: float,
) -> float | None:
    """The next lower load to soak, likely to be sustained; None where no lower load is left.

    Args:
        failed: The loads that failed, at least one, in the order of the soaks.
        tried: The soaks that gave a result.
        rounds: The rounds of the config, or of the one it replaces.
        least: No lower level than this is returned.
    """
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
    """The load half way between the last soak, if sustained, and the lowest that missed.

    None where none missed, the last one missed, or the load is less than `WORTH` times higher.
    """
    missed = [s.level for s in tried if not s.sustained]
    if not missed or not tried[-1].sustained or not rules.plan.searches_rates:
        return None
    sustained = tried[-1].level
    level = rules.plan.levels.nearest(math.sqrt(sustained * min(missed)))
    return level if level >= WORTH * sustained else None


def surely_sustained(tried: Sequence[Soaked], rounds: Contender, rules: ProofRules) -> float:
    """The level that meets the tail SLO in the long run, with `CONFIDENCE`; infinite if unknown.

    The capacity by the soaks is the level where their SLO utilisation would be 1. The mean capacity
    of the rounds errs in the other direction. The result is the geometric mean of the two, less the
    error of the soaks, which are half of the estimate.
    """
    error = _error(tried, rules)
    if not rounds.rounds or error is None:
        return math.inf
    slope = steepness([r.probes for r in rounds.rounds]) or STEEP
    by_rounds = geometric_mean(rounds.levels())
    by_soaks = _capacities(tried, slope)
    both = math.sqrt(by_rounds * geometric_mean(by_soaks or [by_rounds]))
    return both * math.exp(-_HALF * error / slope)


def likely_capacity(soak: Soak | None, rounds: Contender) -> float | None:
    """The capacity by rounds and soaks, without what a credit leaves out; None if unknown.

    It is at most the lowest load that missed. Where the soaks contradict the rounds
    (`CONTRADICTS`), only the soaks count.
    """
    if not rounds.rounds or soak is None or soak.sustained is None:
        return None
    by_soaks = [math.log(level) for level in _capacities(soak.tried, _slope(rounds))]
    by_rounds = math.log(geometric_mean(rounds.levels()))
    lasting = fmean(by_soaks) if by_soaks else by_rounds
    if by_rounds - lasting <= CONTRADICTS:
        lasting = (lasting + by_rounds) / 2.0
    missed = [s.level for s in soak.tried if not s.sustained]
    return max(min([math.exp(lasting), *missed]), soak.sustained.level)


def _likely(tried: Sequence[Soaked], rounds: Contender, rules: ProofRules) -> float | None:
    """The level likely to be sustained; each missed soak has the weight of all rounds together.

    Where the soaks contradict the rounds (`CONTRADICTS`), only the soaks count. None where the
    soaks do not show a capacity.
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
    """The exponent of the load by which the latency rises near its bound; at least `STEEP`."""
    return max(steepness([r.probes for r in rounds.rounds]) or STEEP, STEEP)


def _capacities(tried: Sequence[Soaked], slope: float) -> list[float]:
    """For each unsaturated soak with enough SLO utilisation, the level where that would be 1."""
    points = (s.point for s in tried if not saturated(s.point))
    return [level_at_bound(p, slope) for p in points if (p.slo_utilisation or 0.0) >= NEAR[0]]


def _error(tried: Sequence[Soaked], rules: ProofRules) -> float | None:
    """Relative standard error of the last soak's percentile; None where it is not known.

    For n independent requests and an exponential tail, the relative standard error of the
    latency's quantile q is sqrt(q / (1 - q) / n) / -ln(1 - q). The callers divide it by the
    exponent of `_slope`, which gives the error of the capacity.
    """
    slo = tail_slo(rules.slos)
    quantile = 0.0 if slo is None else slo.metric.quantile or 0.0
    late = tried[-1].late
    if not quantile or late is None:
        return None
    return math.sqrt(quantile / (1.0 - quantile) / late.effective) / -math.log1p(-quantile)
