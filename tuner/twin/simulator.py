"""One model on Triton under load, simulated request by request.

About a million requests a second on one core: what a measurement of seconds shows takes some
milliseconds. The modules beside this one hold the parts, each after the source it imitates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.twin.state import HIT, REJECTED, SERVED, new_memory, new_state
from tuner.twin.system import Scheduler, Service, Traffic, Way


@dataclass(frozen=True)
class Outcome:
    """What the window showed, counted as `tuner.load.latency.timeline` counts it.

    Attributes:
        throughput_infer_per_s: Inferences answered inside the window, per second of it.
        latencies_us: Ascending. Open loop: of the requests due inside the window, from the
            moment they were due; those never answered as slow as the slowest at least. Closed
            loop: of the requests answered inside it. Refused requests are in neither.
        unanswered_count: Of the requests due inside the window.
        rejected_count: Likewise.
        hit_rate: Hits per request that was answered.
        queue_us: Mean wait from the server's door to the execution, hits included as 0.
        compute_us: Mean over requests of the time of the batch they were in.
        executions: By batch size, from 0 on, finished inside the window.
        busy_cores: Of the host, in the mean of the window.
    """

    throughput_infer_per_s: float
    latencies_us: npt.NDArray[np.float64]
    unanswered_count: int
    rejected_count: int
    hit_rate: float
    queue_us: float
    compute_us: float
    executions: npt.NDArray[np.int64]
    busy_cores: float

    def percentile_us(self, share: float, lost: int = 0) -> float:
        """Nearest rank; not a number when there are no latencies.

        ``lost`` requests are ranked above all that have one; the highest latency where the rank is
        among them.
        """
        count = self.latencies_us.size
        if count == 0:
            return float("nan")
        rank = int(np.ceil(share * (count + lost)))
        return float(self.latencies_us[min(max(rank, 1), count) - 1])

    @property
    def mean_batch_size(self) -> float:
        batches = int(self.executions.sum())
        sizes = np.arange(self.executions.size)
        return float((sizes * self.executions).sum() / batches) if batches else 0.0


@dataclass(frozen=True)
class Trace:
    """Each request on its own: due, queued, started, answered (seconds; infinite: never)."""

    due_s: npt.NDArray[np.float64]
    arrived_s: npt.NDArray[np.float64]
    started_s: npt.NDArray[np.float64]
    answered_s: npt.NDArray[np.float64]
    fate: npt.NDArray[np.int8]


_KEPT = ("due_s", "arrived_s", "started_s", "answered_s", "fate")


def simulate(
    scheduler: Scheduler, service: Service, way: Way, traffic: Traffic, seed: int = 0
) -> Outcome:
    """The window of one load point.

    Args:
        scheduler: The model's config.
        service: What batches cost.
        way: What a request meets outside queue and model.
        traffic: The load.
        seed: Of everything random. Equal seeds draw equal numbers for every config, so that
            differences are the configs' own.
    """
    requests, state = trace_requests(scheduler, service, way, traffic, seed)
    return _observe(requests, traffic, state)


def trace_requests(
    scheduler: Scheduler, service: Service, way: Way, traffic: Traffic, seed: int = 0
) -> tuple[Trace, Any]:
    """The same run, request by request, and the record at its end (`tuner.twin.state.STATE`)."""
    from tuner.twin.events import run  # numba takes a second to import

    count = _most_requests(scheduler, service, way, traffic)
    traffic = replace(traffic, keys=_cut(traffic.keys, count), levels=_cut(traffic.levels, count))
    states = new_state(scheduler, service, way, traffic, count)
    memory = new_memory(scheduler, service, way, traffic, count, seed)
    warm = traffic.warm_keys if scheduler.cache_entries else None
    run(states, memory, np.zeros(0, np.int64) if warm is None else warm)
    sent = count if traffic.due_s is not None else int(states[0]["sent"])
    rows = memory.requests[:sent]
    requests = Trace(*(np.ascontiguousarray(rows[name]) for name in _KEPT))
    return requests, states[0]


def _most_requests(scheduler: Scheduler, service: Service, way: Way, traffic: Traffic) -> int:
    """How many there are; for a closed loop, how many there can be at most."""
    if traffic.due_s is not None:
        return int(traffic.due_s.size)
    if traffic.keys is not None:
        return int(traffic.keys.size)
    batch = max(scheduler.max_batch_size, 1) if scheduler.batching else traffic.request_size
    fastest_s = service.exclusive_base_s / scheduler.devices
    fastest_s = max(fastest_s, service.overlap_base_s / scheduler.instances)
    by_service = batch / traffic.request_size / fastest_s if fastest_s > 0.0 else np.inf
    by_clients = traffic.concurrency / max(way.base_s + fastest_s, 1e-6)
    by_front = way.cores / (2.0 * way.front_s) if way.front_s > 0.0 else np.inf
    rate = min(by_service, by_clients, by_front)
    return int(min(rate * traffic.end_s * 1.5 + 4 * traffic.concurrency + 64, 20_000_000))


def _cut(given: npt.NDArray[np.int64] | None, count: int) -> npt.NDArray[np.int64] | None:
    return None if given is None else given[:count]


def _observe(requests: Trace, traffic: Traffic, state: Any) -> Outcome:
    start_s, end_s = traffic.window_s
    count = int(state["max_batch"]) + 1
    executions, busy_s = state["executions"][:count], state["busy_s"][:count]
    answered = (requests.answered_s >= start_s) & (requests.answered_s < end_s)
    served = (requests.fate == SERVED) | (requests.fate == HIT)
    due_inside = (requests.due_s >= start_s) & (requests.due_s < end_s)
    chosen = answered & served if traffic.due_s is None else due_inside
    chosen &= requests.fate != REJECTED
    ended_s = np.minimum(requests.answered_s[chosen], traffic.end_s)
    latencies_s = np.sort(ended_s - requests.due_s[chosen])
    missing = int((requests.answered_s[chosen] > traffic.end_s).sum())
    if missing and latencies_s.size > missing:
        latencies_s = _unanswered_last(requests, chosen, traffic.end_s)
    inside = served & answered
    waits_s = requests.started_s[inside] - requests.arrived_s[inside]
    sizes = np.arange(executions.size)
    weight = float((sizes * executions).sum())
    hits = int((requests.fate[inside] == HIT).sum())
    answered_count = int(inside.sum())
    return Outcome(
        throughput_infer_per_s=answered_count * traffic.request_size / (end_s - start_s),
        latencies_us=latencies_s * 1e6,
        unanswered_count=missing,
        rejected_count=int(((requests.fate == REJECTED) & due_inside).sum()),
        hit_rate=hits / answered_count if answered_count else 0.0,
        queue_us=float(waits_s.mean()) * 1e6 if answered_count else 0.0,
        compute_us=float((sizes * busy_s).sum() / weight) * 1e6 if weight else 0.0,
        executions=executions,
        busy_cores=float(state["worked_s"]) / (end_s - start_s),
    )


def _unanswered_last(
    requests: Trace, chosen: npt.NDArray[np.bool_], end_s: float
) -> npt.NDArray[np.float64]:
    """Who never got an answer counts as slower than all others."""
    answered_s, due_s = requests.answered_s[chosen], requests.due_s[chosen]
    late = answered_s > end_s
    in_time_s = np.sort(answered_s[~late] - due_s[~late])
    return np.append(in_time_s, np.sort(np.maximum(end_s - due_s[late], in_time_s[-1])))
