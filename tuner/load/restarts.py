"""Combines several starts of a closed loop into one measurement.

A closed loop is bistable: 32 clients can settle into one batch of 32 or into two of 16, and stay
there until the load ends. Only another start shows the other mode. So each measurement of a closed
loop has several starts, each with an equal part of the window and with other inputs. The total
length is unchanged, but each start adds one warm-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from tuner.load.latency import latency_figures
from tuner.load.validity import warnings_about
from tuner.measurement.host_use import HostUse
from tuner.measurement.measurement import (
    FailureReason,
    Failures,
    Figures,
    Measurement,
    Restart,
    ServerStatistics,
)
from tuner.measurement.responses import responses_of_all
from tuner.reason import Fact, Reason, ReasonKind
from tuner.spec.slo import Slo

F = TypeVar("F", bound=Figures)

#: Shortest window of a start.
LEAST_S = 1.0
_ADDED_UP = ("duration_s", "completed_count", "failed_count", "rejected_count")
_AVERAGED = (
    "in_time_infer_per_s",
    *("throughput_infer_per_s", "sent_per_s", "mean_in_flight"),
    *("client_send_us", "client_recv_us", "network_us"),
)
#: Largest ratio of the highest to the lowest throughput of a start, minus one, within one mode.
SPREAD = 0.05


def part_s(duration_s: float, count: int) -> float:
    """Length of each start's window."""
    return duration_s if count == 1 else max(duration_s / count, LEAST_S)


def combine(starts: Sequence[Measurement], bounds: Sequence[Slo] = ()) -> Measurement:
    """One measurement from several starts of the same load, with windows of the same length.

    Percentiles are over the requests of all starts.

    Args:
        bounds: Latency SLOs, see `Figures.within_bounds`.
    """
    combined = replace(
        _figures(starts),
        client_cores=_known(fmean, [m.client_cores for m in starts]),
        wall_s=sum(m.wall_s for m in starts),
        models={
            name: statistics
            for name in starts[0].models
            if (statistics := _server([m.models.get(name) for m in starts]))
        },
        streams=_each([m.streams for m in starts]),
        host=_host([m.host for m in starts]),
    )
    said = [w for m in starts for w in m.warnings if w not in warnings_about(m, bounds)]
    warnings = (*dict.fromkeys(said), *_spread(combined), *warnings_about(combined, bounds))
    return replace(combined, warnings=warnings)


def _figures(starts: Sequence[F]) -> F:
    latencies = [m.latencies_us for m in starts if m.latencies_us is not None]
    assert len(latencies) == len(starts)  # no generator measures without them
    return replace(
        starts[0],
        **{name: sum(getattr(m, name) for m in starts) for name in _ADDED_UP},
        **{name: _known(fmean, [getattr(m, name) for m in starts]) for name in _AVERAGED},
        **latency_figures(np.sort(np.concatenate(latencies))),
        server=_server([m.server for m in starts]),
        shapes=_each([m.shapes for m in starts]),
        failures=_failures([m.failures for m in starts]),
        responses=responses_of_all(m.responses for m in starts),
        backlog=starts[-1].backlog,
        restarts=tuple(Restart(m.throughput_infer_per_s, m.p99_latency_us) for m in starts),
        warnings=(),
    )


def _spread(combined: Measurement) -> tuple[Reason, ...]:
    rates = [start.throughput_infer_per_s for start in combined.restarts]
    low, high = min(rates), max(rates)
    if high <= low * (1.0 + SPREAD):
        return ()
    facts: dict[str, Fact] = {
        "lowest_infer_per_s": low,
        "highest_infer_per_s": high,
        "start_count": len(rates),
    }
    return (Reason(ReasonKind.CLOSED_LOOP_MODES, facts=facts),)


def _each(starts: Sequence[Mapping[str, Figures]]) -> dict[str, Figures]:
    """Figures of each stream, or each shape, that is present in every start."""
    by_name = {name: [start.get(name) for start in starts] for name in starts[0]}
    return {
        name: _figures([part for part in parts if part])
        for name, parts in by_name.items()
        if None not in parts
    }


def _failures(
    parts: Sequence[Mapping[FailureReason, Failures]],
) -> dict[FailureReason, Failures]:
    """Sums of counts; percentiles from the start with the worst ones."""
    by_reason = {r: [part[r] for part in parts if r in part] for r in FailureReason}
    return {
        reason: Failures(
            sum(failures.count for failures in starts),
            max(failures.p50_told_us for failures in starts),
            max(failures.p99_told_us for failures in starts),
        )
        for reason, starts in by_reason.items()
        if starts
    }


def _server(parts: Sequence[ServerStatistics | None]) -> ServerStatistics | None:
    """Sums of counts; mean durations weighted by the number of requests."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    counts = {
        field.name: sum(getattr(part, field.name) for part in known)
        for field in fields(ServerStatistics)
        if field.name.endswith("_count")
    }
    computed = [max(p.success_count - p.cache_hit_count, 0) for p in known]

    def compute_us(name: str) -> float:
        return _weighted([getattr(part, name) for part in known], computed)

    batches: dict[int, tuple[int, int]] = {}
    for size, executions, total_ns in (row for part in known for row in part.batch_stats):
        before = batches.get(size, (0, 0))
        batches[size] = (before[0] + executions, before[1] + total_ns)
    return ServerStatistics(
        **counts,
        queue_us=_weighted([p.queue_us for p in known], [p.success_count for p in known]),
        compute_input_us=compute_us("compute_input_us"),
        compute_infer_us=compute_us("compute_infer_us"),
        compute_output_us=compute_us("compute_output_us"),
        batch_stats=tuple((size, *batches[size]) for size in sorted(batches)),
    )


#: How readings of several starts are combined; the maximum for readings not listed.
_READINGS: dict[str, Callable[[list[Any]], Any]] = {
    "cpu_percent": fmean,
    "governor": lambda values: values[-1],
    "gpu_utilization": fmean,
    "gpu_power_w": fmean,
    "gpu_clock_mhz": min,
    "cache_utilization": lambda values: values[-1],
    "cache_entries": lambda values: values[-1],
    "cache_evictions": sum,
    "throttled_s": sum,
    "memory": lambda values: values[-1],  # of a part of the window each: they do not add up
    "gpu_memory": lambda values: values[-1],
}


def _host(parts: Sequence[HostUse]) -> HostUse:
    return HostUse(
        **{
            name: _known(_READINGS.get(name, max), [getattr(part, name) for part in parts])
            for name in vars(parts[0])
        }
    )


def _known(combine: Callable[[list[Any]], Any], values: Sequence[Any]) -> Any:
    """The combination of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return combine(known) if known else None


def _weighted(values: Sequence[float], weights: Sequence[int]) -> float:
    return float(np.average(values, weights=weights)) if sum(weights) else 0.0
