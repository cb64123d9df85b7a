"""Which loads a run may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tuner.measurement.measurement import Arrivals
from tuner.measurement.window import lowest_rate
from tuner.score.capacity import LevelRange
from tuner.spec.objective import Objective
from tuner.spec.slo import Slo, tail_shares
from tuner.spec.workload import ClosedArrivals, Workload


@dataclass(frozen=True)
class LoadPlan:
    """Levels of a run.

    Attributes:
        listed: Levels fixed by the spec, ascending; None when the capacity is searched.
        levels: Limits of that search.
    """

    arrivals: Arrivals
    listed: tuple[float, ...] | None
    levels: LevelRange


def lowest_level(slos: Sequence[Slo], shares: Mapping[str, float], window_s: float) -> float:
    """The lowest level at which a window holds what each stream's percentiles need of requests."""
    return max(
        lowest_rate(tail_shares(slo for slo in slos if slo.holds_for(stream)), window_s) / share
        for stream, share in shares.items()
    )


def load_plan(
    workload: Workload,
    objective: Objective,
    slos: Sequence[Slo] = (),
    shares: Mapping[str, float] = MappingProxyType({"": 1.0}),
) -> LoadPlan:
    """The levels to measure; rates at which the longest window is too short are not among them.

    ``shares``: the parts of the streams that the level is of.
    """
    arrivals = workload.arrivals
    kind = Arrivals(arrivals.kind)
    if isinstance(arrivals, ClosedArrivals):
        given: Sequence[float] | None = arrivals.concurrency
        levels = LevelRange(1.0, float(arrivals.max_concurrency), whole=True)
    else:
        given = arrivals.rate
        lowest = lowest_level(slos, shares, float(workload.max_window))
        levels = LevelRange(min(lowest, arrivals.max_rate), arrivals.max_rate)
    if objective.at_level is not None:
        given = (objective.at_level,)
    listed = None if given is None else tuple(sorted(float(level) for level in given))
    return LoadPlan(kind, listed, levels)
