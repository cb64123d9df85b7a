"""The highest load at which a candidate meets every SLO, found by simulation.

The same bracketing as on a real server, `tuner.score.next_load.find_capacity`. Every candidate
meets the same random numbers (arrivals, ways, service times), so that the order of two
candidates is not a matter of luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.score.capacity import LevelRange, saturated
from tuner.score.judge import margin
from tuner.score.next_load import find_capacity
from tuner.spec.metrics import AVG_LATENCY, ERROR_RATE, THROUGHPUT, Metric
from tuner.spec.slo import Slo
from tuner.twin.costs import Costs
from tuner.twin.observation import Setting
from tuner.twin.simulator import Outcome
from tuner.twin.system import Network

#: A capacity is known well enough when its bracket is this narrow (ratio minus one).
TOLERANCE = 0.015
#: Simulated requests at each rate: a p99 over fewer is a matter of luck.
REQUESTS = 2000
_LEAST_S, _MOST_S = 0.5, 20.0
#: Length of a closed loop's window.
CLOSED_S = 1.0
_PROBES = 12


@dataclass(frozen=True)
class Requirement:
    """What a load must meet, and which loads may be asked for.

    Attributes:
        slos: Those on GPU memory are not judged: memory is not simulated.
        levels: Requests per second, or requests at once.
    """

    slos: Sequence[Slo]
    arrivals: Arrivals
    levels: LevelRange


@dataclass(frozen=True)
class Simulated:
    """A window under one load: a `tuner.score.capacity.Probe`."""

    outcome: Outcome
    level: float
    requirement: Requirement
    undecided: Literal[False] = False

    @cached_property
    def passed(self) -> bool:
        """Every SLO was met and the server kept up: a growing queue may meet them for a while."""
        return not saturated(self) and all(meets(s, self.outcome) for s in self.requirement.slos)

    @property
    def served_per_s(self) -> float | None:
        open_loop = self.requirement.arrivals.open_loop
        return self.outcome.requests_per_s if open_loop else None

    @cached_property
    def slo_utilisation(self) -> float | None:
        return slo_utilisation(self.requirement.slos, self.outcome)


def capacity_of(
    setting: Setting,
    costs: Costs,
    network: Network,
    requirement: Requirement,
    *,
    near: float,
    seed: int = 0,
) -> float:
    """The highest level that meets all SLOs; 0 when none does.

    Args:
        setting: Of the run.
        costs: A fit's, or those of a resampled one.
        network: What to try.
        requirement: SLOs and loads.
        near: Where to begin to look: a level of about that size.
        seed: Of arrivals and everything else.
    """
    levels = requirement.levels

    def probe(level: float) -> Simulated:
        return simulated(setting, costs, network, requirement, level, seed)

    found = find_capacity(probe, levels.nearest(near), levels, TOLERANCE, _PROBES).capacity()
    if found is None:
        return 0.0
    return float(math.floor(found)) if levels.whole else found


def simulated(
    setting: Setting,
    costs: Costs,
    network: Network,
    requirement: Requirement,
    level: float,
    seed: int = 0,
) -> Simulated:
    """A window under ``level`` that is long enough for `REQUESTS`."""
    duration_s = min(max(REQUESTS / level, _LEAST_S), _MOST_S) if level > 0 else _MOST_S
    if requirement.arrivals is Arrivals.CLOSED:
        duration_s = CLOSED_S
    traffics = setting.traffics(LoadPoint(requirement.arrivals, level), duration_s, seed)
    outcome = costs.simulate(network, traffics, seed)
    return Simulated(outcome, level, requirement)


def meets(slo: Slo, outcome: Outcome) -> bool:
    """One SLO against a simulated window; refused requests are errors, as in `tuner.score`."""
    outcome = outcome.of(slo.stream)
    value = simulated_value(slo.metric, outcome)
    if value is None:
        return True
    quantile = slo.metric.quantile
    errors = simulated_value(ERROR_RATE, outcome) or 0.0
    if quantile is not None and errors > 1.0 - quantile:
        return False
    return slo.met_by(value)


def slo_utilisation(slos: Sequence[Slo], outcome: Outcome) -> float | None:
    """The largest share of a bound that is used up, as `tuner.score.judge.slo_utilisation`."""
    judged = [s for s in slos if s.bound != 0]
    margins = (
        margin(slo, _known(simulated_value(slo.metric, outcome.of(slo.stream)))) for slo in judged
    )
    return max((1.0 - m for m in margins if m is not None), default=None)


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def simulated_value(metric: Metric, outcome: Outcome) -> float | None:
    """The metric in its base unit; None for what is not simulated."""
    if metric.quantile is not None:
        return outcome.percentile_us(metric.quantile, outcome.rejected_count)
    if metric is AVG_LATENCY:
        return float(outcome.latencies_us.mean()) if outcome.latencies_us.size else math.nan
    if metric is ERROR_RATE:
        total = outcome.latencies_us.size + outcome.rejected_count
        return outcome.rejected_count / total if total else 0.0
    return outcome.throughput_infer_per_s if metric is THROUGHPUT else None
