"""Triton's statistics of one measurement: the difference of two snapshots."""

from __future__ import annotations

from tuner.measurement.measurement import ServerStatistics
from tuner.server.statistics import BatchStatistics, StatisticsSnapshot


def difference(before: StatisticsSnapshot, after: StatisticsSnapshot) -> ServerStatistics | None:
    """What the server counted between two snapshots; None when its counters were reset.

    Queue time is per successful request, compute times per request that was computed (cache
    hits are not), in microseconds.
    """
    success = after.success_count - before.success_count
    hits = after.cache_hit_count - before.cache_hit_count
    executions = after.execution_count - before.execution_count
    if min(success, hits, executions, after.inference_count - before.inference_count) < 0:
        return None
    computed = max(success - hits, 0)

    def compute_us(name: str) -> float:
        return _per_request_us(getattr(after, name) - getattr(before, name), computed)

    return ServerStatistics(
        success_count=success,
        fail_count=after.fail_count - before.fail_count,
        inference_count=after.inference_count - before.inference_count,
        execution_count=executions,
        queue_us=_per_request_us(after.queue_ns - before.queue_ns, success),
        compute_input_us=compute_us("compute_input_ns"),
        compute_infer_us=compute_us("compute_infer_ns"),
        compute_output_us=compute_us("compute_output_ns"),
        cache_hit_count=hits,
        cache_miss_count=after.cache_miss_count - before.cache_miss_count,
        batch_stats=_batches(before, after),
    )


def _per_request_us(total_ns: int, count: int) -> float:
    return total_ns / count / 1e3 if count else 0.0


def _batches(
    before: StatisticsSnapshot, after: StatisticsSnapshot
) -> tuple[tuple[int, int, int], ...]:
    none = BatchStatistics(0, 0)
    rows = []
    for size, now in sorted(after.batches.items()):
        then = before.batches.get(size, none)
        if now.count > then.count:
            rows.append(
                (size, now.count - then.count, now.compute_infer_ns - then.compute_infer_ns)
            )
    return tuple(rows)
