"""How good a simulated candidate is for the objective, as `Aim` counts it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from tuner.measurement.measurement import LoadPoint
from tuner.score.aim import NOTHING, STEEPNESS, Aim
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
from tuner.twin.fit import Twin
from tuner.twin.system import Network, Traffic

#: Of a first look at a candidate: simulated requests, its length at least, and before it.
_FEW, _LEAST_S, _SETTLE_S = 400, 0.3, 0.15
#: Load of a first look: a little above the load to beat, where good and bad candidates differ.
_ABOVE = 1.05


def requirement_of(aim: Aim) -> Requirement:
    return Requirement(aim.slos, aim.plan.arrivals, aim.plan.levels)


@dataclass(frozen=True)
class Glances:
    """First looks at many candidates: rough worths, all under one short load.

    Attributes:
        traffics: The load; None where the objective needs a whole look.
    """

    twin: Twin
    aim: Aim
    level: float
    traffics: tuple[Traffic, ...] | None

    @classmethod
    def near(cls, twin: Twin, aim: Aim, level: float) -> Self:
        """Under a load near ``level``, drawn once."""
        if aim.objective.goal is Goal.MINIMIZE or aim.plan.listed is not None:
            return cls(twin, aim, level, None)
        level = aim.plan.levels.nearest(level * _ABOVE)
        arrivals = aim.plan.arrivals
        length_s = max(_FEW / level, _LEAST_S) if arrivals.open_loop else CLOSED_S
        setting = replace(twin.setting, warmup_s=_SETTLE_S, tail_s=0.0)
        return cls(twin, aim, level, setting.traffics(LoadPoint(arrivals, level), length_s, 0))

    def worth(self, network: Network) -> float:
        if self.traffics is None:
            return looked_at(self.twin, self.twin.costs, network, self.aim, self.level)
        outcome = self.twin.costs.simulate(network, self.traffics, 0)
        probe = Simulated(outcome, self.level, requirement_of(self.aim))
        worth = self.aim.worth(outcome.throughput_infer_per_s)
        if probe.slo_utilisation is None:
            return worth if probe.passed else worth - 1.0
        return worth - math.log(max(probe.slo_utilisation, 1e-3)) / STEEPNESS


def looked_at(twin: Twin, costs: Costs, network: Network, aim: Aim, level: float) -> float:
    """The worth under ``costs``; ``level`` is where to begin to look for the capacity."""
    if aim.objective.goal is Goal.MINIMIZE:
        return _minimised(twin, costs, network, aim)
    if aim.plan.listed is not None:
        return _listed(twin, costs, network, aim)
    found = capacity_of(twin.setting, costs, network, requirement_of(aim), near=level)
    if found <= 0.0:
        return NOTHING
    if aim.plan.arrivals.open_loop:
        return aim.worth(found * twin.setting.request_size)
    seen = simulated(twin.setting, costs, network, requirement_of(aim), found)
    return aim.worth(seen.outcome.throughput_infer_per_s)


def _listed(twin: Twin, costs: Costs, network: Network, aim: Aim) -> float:
    worth = NOTHING
    for level in aim.plan.listed or ():
        seen = simulated(twin.setting, costs, network, requirement_of(aim), level)
        if not seen.passed:
            break
        worth = aim.worth(seen.outcome.throughput_infer_per_s)
    return worth


def _minimised(twin: Twin, costs: Costs, network: Network, aim: Aim) -> float:
    objective = aim.objective
    assert objective.at_level is not None
    assert objective.metric is not None
    seen = simulated(twin.setting, costs, network, requirement_of(aim), objective.at_level)
    value = simulated_value(objective.metric, seen.outcome)
    if value is None or math.isnan(value):
        return NOTHING
    missed = 0.0 if seen.passed else 1.0 + math.log(max(seen.slo_utilisation or 1.0, 1.0))
    return aim.worth(value) - missed
