"""How good simulated candidates are for the objective: their capacities, in the units of `Aim`.

A capacity is bracketed as on a real server, by `CapacitySearch`. Every candidate meets the same
random numbers (arrivals, ways, service times), so that the order of two candidates is not a matter
of luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.score.capacity import Bracket, LevelRange, saturated
from tuner.score.judge import margin
from tuner.score.next_load import CapacitySearch
from tuner.score.trial import NOTHING, STEEPNESS, Aim
from tuner.space.candidate import CACHE, Candidate
from tuner.spec.metrics import AVG_LATENCY, ERROR_RATE, THROUGHPUT, Metric
from tuner.spec.slo import Goal, Slo
from tuner.twin.costs import Costs
from tuner.twin.fitting import Twin
from tuner.twin.model import Unmodelled
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
    search = CapacitySearch(levels.nearest(near), levels, TOLERANCE, _PROBES)
    while (level := search.ask()) is not None:
        search.tell(simulated(setting, costs, network, requirement, level, seed))
    found = Bracket.of(search.probes).capacity()
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


#: Of a first look at a candidate: simulated requests, its length at least, and before it.
_FEW, _LEAST_S, _SETTLE_S = 400, 0.3, 0.15
#: Load of a first look: a little above the load to beat, where good and bad candidates differ.
_ABOVE = 1.05


def predict(
    twin: Twin,
    candidates: Sequence[Candidate],
    aim: Aim,
    level: float,
    *,
    roughly: bool = False,
    refit: int | None = None,
) -> list[float | None]:
    """The worth of each candidate; None for one that cannot be simulated.

    Args:
        twin: What was fitted.
        candidates: What to simulate, on all cores: no load is on while the search thinks.
        aim: The objective and the SLOs.
        level: Where to begin to look for the capacity, or the load of a rough look.
        roughly: All are simulated under one short load, where the objective allows that.
        refit: Which of the fits to resampled trials is used; None for the best fit.
    """
    costs = twin.costs if refit is None else twin.refits[refit]
    worth: Callable[[Network], float] = partial(_worth, twin, costs, aim, level)
    if roughly and aim.objective.goal is not Goal.MINIMIZE and aim.plan.listed is None:
        worth = _rough_worth(twin, costs, aim, level)

    def predicted(candidate: Candidate) -> float | None:
        network = twin.setting.network(candidate)
        if isinstance(network, Unmodelled) and candidate.cache_bytes is not None:
            # A cache whose hits cannot be simulated is left to what trials show.
            network = twin.setting.network(Candidate({**candidate.values, CACHE: None}))
        return None if isinstance(network, Unmodelled) else worth(network)

    with ThreadPoolExecutor() as threads:
        return list(threads.map(predicted, candidates))


def _rough_worth(twin: Twin, costs: Costs, aim: Aim, level: float) -> Callable[[Network], float]:
    """A first look, under a load near ``level`` that is drawn once."""
    level = aim.plan.levels.nearest(level * _ABOVE)
    arrivals = aim.plan.arrivals
    length_s = max(_FEW / level, _LEAST_S) if arrivals.open_loop else CLOSED_S
    setting = replace(twin.setting, warmup_s=_SETTLE_S, tail_s=0.0)
    traffics = setting.traffics(LoadPoint(arrivals, level), length_s, 0)

    def worth(network: Network) -> float:
        outcome = costs.simulate(network, traffics, 0)
        probe = Simulated(outcome, level, _required(aim))
        found = aim.worth(outcome.throughput_infer_per_s)
        if probe.slo_utilisation is None:
            return found if probe.passed else found - 1.0
        return found - math.log(max(probe.slo_utilisation, 1e-3)) / STEEPNESS

    return worth


def _worth(twin: Twin, costs: Costs, aim: Aim, level: float, network: Network) -> float:
    if aim.objective.goal is Goal.MINIMIZE:
        return _minimised(twin, costs, aim, network)
    required = _required(aim)
    if aim.plan.listed is not None:
        worth = NOTHING
        for one in aim.plan.listed:
            seen = simulated(twin.setting, costs, network, required, one)
            if not seen.passed:
                break
            worth = aim.worth(seen.outcome.throughput_infer_per_s)
        return worth
    found = capacity_of(twin.setting, costs, network, required, near=level)
    if found <= 0.0:
        return NOTHING
    if aim.plan.arrivals.open_loop:
        return aim.worth(found * twin.setting.request_size)
    seen = simulated(twin.setting, costs, network, required, found)
    return aim.worth(seen.outcome.throughput_infer_per_s)


def _minimised(twin: Twin, costs: Costs, aim: Aim, network: Network) -> float:
    objective = aim.objective
    assert objective.at_level is not None
    assert objective.metric is not None
    seen = simulated(twin.setting, costs, network, _required(aim), objective.at_level)
    value = simulated_value(objective.metric, seen.outcome)
    if value is None or math.isnan(value):
        return NOTHING
    missed = 0.0 if seen.passed else 1.0 + math.log(max(seen.slo_utilisation or 1.0, 1.0))
    return aim.worth(value) - missed


def _required(aim: Aim) -> Requirement:
    return Requirement(aim.slos, aim.plan.arrivals, aim.plan.levels)
