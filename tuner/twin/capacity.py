"""The highest load at which a candidate meets every SLO, found by simulation.

Every candidate meets the same random numbers (arrivals, ways, service times), so that the order
of two candidates is not a matter of luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.load.measurement import Arrivals, LoadPoint
from tuner.score.capacity import SATURATED
from tuner.space.candidate import Candidate
from tuner.spec.slo import Metric, Slo
from tuner.twin.costs import Costs
from tuner.twin.fit import Twin
from tuner.twin.model import Unmodelled
from tuner.twin.simulator import Outcome
from tuner.twin.system import Scheduler

#: A capacity is known well enough when its bracket is this narrow (ratio minus one).
TOLERANCE = 0.02
#: Simulated requests at each rate: a p99 over fewer is a matter of luck.
_REQUESTS = 2000
_LEAST_S, _MOST_S = 0.5, 20.0
_PROBES = 14


@dataclass(frozen=True)
class Goal:
    """What a load must meet, and which loads may be asked for.

    Attributes:
        slos: Those on GPU memory are not judged: memory is not simulated.
        arrivals: Of the loads.
        least: Of their levels (requests per second, or requests at once).
        most: Likewise.
    """

    slos: Sequence[Slo]
    arrivals: Arrivals
    least: float = 0.1
    most: float = 1e5


def capacity(
    twin: Twin, candidate: Candidate, goal: Goal, *, near: float, seed: int = 0
) -> float | Unmodelled:
    """The highest level that meets all SLOs; 0 when none does.

    Args:
        twin: Fitted.
        candidate: What to try.
        goal: SLOs and loads.
        near: Where to begin to look: a level of about that size.
        seed: Of arrivals and everything else.
    """
    scheduler = twin.setting.scheduler(candidate)
    if isinstance(scheduler, Unmodelled):
        return scheduler
    return capacity_of(twin, twin.costs, scheduler, goal, near=near, seed=seed)


def capacity_of(
    twin: Twin, costs: Costs, scheduler: Scheduler, goal: Goal, *, near: float, seed: int = 0
) -> float:
    """`capacity` with given costs, such as those of a resampled fit."""
    passed, failed = 0.0, math.inf
    level = min(max(near, goal.least), goal.most)
    for _ in range(_PROBES):
        outcome, fits = _probe(twin, costs, scheduler, goal, level, seed)
        if fits:
            passed = level
        else:
            failed = level
        if passed >= goal.most or failed <= goal.least or failed <= passed * (1 + TOLERANCE):
            break
        level = _next(passed, failed, level, outcome, goal)
    return _served(passed, goal)


def _served(level: float, goal: Goal) -> float:
    whole = goal.arrivals is Arrivals.CLOSED
    return float(math.floor(level)) if whole else level


def _next(passed: float, failed: float, level: float, outcome: Outcome, goal: Goal) -> float:
    """The geometric middle, below what an overloaded server answers; a factor without a bound."""
    ceiling = failed
    if goal.arrivals.open_loop and level == failed and not _keeps_up(outcome, level):
        ceiling = min(failed, 1.02 * outcome.throughput_infer_per_s)
    if passed == 0.0:
        return max(min(failed / 1.6, 0.9 * ceiling), goal.least)
    if math.isinf(failed):
        return min(passed * 1.4, goal.most)
    return math.sqrt(passed * max(ceiling, passed * (1 + TOLERANCE)))


def _keeps_up(outcome: Outcome, level: float) -> bool:
    return outcome.throughput_infer_per_s >= SATURATED * level


def _probe(
    twin: Twin, costs: Costs, scheduler: Scheduler, goal: Goal, level: float, seed: int
) -> tuple[Outcome, bool]:
    duration_s = min(max(_REQUESTS / level, _LEAST_S), _MOST_S) if level > 0 else _MOST_S
    if goal.arrivals is Arrivals.CLOSED:
        duration_s = _LEAST_S * 2
    load = LoadPoint(goal.arrivals, level)
    traffic = twin.setting.traffic(load, duration_s, seed)
    outcome = costs.simulate(scheduler, traffic, seed)
    return outcome, all(meets(slo, outcome) for slo in goal.slos)


def meets(slo: Slo, outcome: Outcome) -> bool:
    """One SLO against a simulated window; refused requests are errors, as in `tuner.score`."""
    value = simulated_value(slo.metric, outcome)
    if value is None:
        return True
    quantile = slo.metric.quantile
    errors = simulated_value(Metric.ERROR_RATE, outcome) or 0.0
    if quantile is not None and errors > 1.0 - quantile:
        return False
    return slo.met_by(value)


def simulated_value(metric: Metric, outcome: Outcome) -> float | None:
    """The metric in its base unit; None for what is not simulated."""
    if metric.quantile is not None:
        return outcome.percentile_us(metric.quantile)
    if metric is Metric.AVG_LATENCY:
        return float(outcome.latencies_us.mean()) if outcome.latencies_us.size else math.nan
    if metric is Metric.ERROR_RATE:
        total = outcome.latencies_us.size + outcome.rejected_count
        return outcome.rejected_count / total if total else 0.0
    return outcome.throughput_infer_per_s if metric is Metric.THROUGHPUT else None
