"""How good simulated candidates are for the objective, as `Aim` counts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from tuner.measurement.measurement import LoadPoint
from tuner.score.aim import NOTHING, STEEPNESS, Aim
from tuner.space.candidate import CACHE, Candidate
from tuner.spec.objective import Goal
from tuner.twin.capacity import (
    CLOSED_S,
    Requirement,
    Simulated,
    capacity_of,
    simulated,
    simulated_value,
)
from tuner.twin.costs import Costs
from tuner.twin.fitting import Twin
from tuner.twin.model import Unmodelled
from tuner.twin.system import Network

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
