"""Model Analyzer's objectives, constraints and budgets as SLOs and an objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.model_analyzer.yaml_file import Profile
from tuner.spec.metrics import (
    AVG_LATENCY,
    GPU_MEMORY,
    METRICS,
    P90_LATENCY,
    P95_LATENCY,
    P99_LATENCY,
    THROUGHPUT,
    Metric,
)
from tuner.spec.mistakes import Location
from tuner.spec.objective import Objective
from tuner.spec.slo import Slo

GOODPUT = "maximize goodput"

#: Its metrics that are ours too.
_OURS = {
    "perf_throughput": THROUGHPUT,
    "perf_latency_avg": AVG_LATENCY,
    "perf_latency_p90": P90_LATENCY,
    "perf_latency_p95": P95_LATENCY,
    "perf_latency_p99": P99_LATENCY,
    "perf_latency": P99_LATENCY,  # an old name for the same
    "gpu_used_memory": GPU_MEMORY,
}
#: Metrics of Model Analyzer that have no counterpart here.
_UNKNOWN = "tune does not measure it; it measures " + ", ".join(METRICS)


def objective(profile: Profile, levels: Sequence[float], open_loop: bool) -> str:
    """``maximize goodput``, or a metric minimised at the one load that the file names.

    ``levels`` are the loads it lists: a latency means something only at a load.
    """
    weights = _weights(profile)
    chosen = max(weights, key=lambda name: weights[name], default="perf_throughput")
    for name in weights:
        if name != chosen:
            reason = f"a spec has one objective; {chosen} weighs as much or more"
            profile.leave(("objectives", name), reason)
    metric = _OURS.get(chosen)
    if metric is THROUGHPUT:
        return GOODPUT
    if metric is None:
        profile.leave(("objectives", chosen), _UNKNOWN)
        return GOODPUT
    if len(levels) != 1:
        reason = (
            f"is lowest where there is no load: write minimize {metric.name} at "
            f"{'RATE/s' if open_loop else 'CONCURRENCY'}"
        )
        profile.leave(("objectives", chosen), reason)
        return GOODPUT
    return f"minimize {metric.name} at {levels[0]:g}{'/s' if open_loop else ''}"


def slos(profile: Profile, goal: str) -> list[str]:
    """Every constraint that has an SLO; `latency_budget` is one on p99 and takes its place.

    ``goal`` is the objective: goodput is the throughput itself and has no bound on it.
    """
    found: dict[Metric, str] = {}
    for name, bound in profile.take_mapping("constraints").items():
        where: Location = ("constraints", name)
        metric = _OURS.get(name)
        value = _bound(profile, where, bound)
        if metric is None:
            profile.leave(where, _UNKNOWN)
        else:
            _add(profile, found, where, metric, value, goal)
    for option, metric in (
        ("latency_budget", P99_LATENCY),
        ("min_throughput", THROUGHPUT),
    ):
        budget = profile.take_number(option)
        if budget is not None:
            _add(profile, found, (option,), metric, budget, goal)
    return list(found.values())


def _add(
    profile: Profile,
    found: dict[Metric, str],
    where: Location,
    metric: Metric,
    value: int,
    goal: str,
) -> None:
    at = Objective.parse(goal)
    if value <= 0:
        profile.leave(where, f"a bound of {value} is meaningless")
    elif metric is THROUGHPUT and at.at_rate and value > (at.at_level or 0):
        profile.leave(where, f"no more than {at.at_level:g}/s are sent")
    elif metric is THROUGHPUT and goal == GOODPUT:
        reason = f"goodput is the throughput and is raised as far as it goes; compare with {value}"
        profile.leave(where, reason)
    else:
        found[metric] = _slo(metric, value)


def _slo(metric: Metric, value: int) -> str:
    """In our units; Model Analyzer's are milliseconds, inferences per second and MB."""
    if metric is THROUGHPUT:
        return str(Slo.parse(f"{metric.name} >= {value}/s"))
    unit = "ms" if metric.is_latency else "MB"
    return f"{metric.name} <= {value}{unit}"


def _bound(profile: Profile, where: Location, bound: Any) -> int:
    limits = list(bound.values()) if isinstance(bound, dict) and len(bound) == 1 else []
    if not limits or isinstance(limits[0], bool) or not isinstance(limits[0], int):
        raise profile.mistake(where, "one bound is expected: {max: 100} or {min: 100}")
    return limits[0]


def _weights(profile: Profile) -> dict[str, float]:
    """Objectives by name; a list means that all weigh the same."""
    given = profile.take("objectives")
    if isinstance(given, str):
        given = given.split(",")
    if isinstance(given, list):
        given = dict.fromkeys((str(name).strip() for name in given), 10)
    if given is None:
        given = {}
    if not isinstance(given, dict) or not all(isinstance(w, int) for w in given.values()):
        message = "a list of metrics, or a mapping of metrics to weights, is expected"
        raise profile.mistake(("objectives",), message)
    return {name: float(weight) for name, weight in given.items()}
