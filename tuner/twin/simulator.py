"""Models on Triton under load, simulated request by request.

About a million requests a second on one core: what a measurement of seconds shows takes some
milliseconds. The modules beside this one hold the parts, each after the source it imitates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.twin.state import HIT, REJECTED, SERVED, Memory, new_memory
from tuner.twin.system import Network, Scheduler, Service, Traffic, Way


@dataclass(frozen=True)
class NodeOutcome:
    """What a model's own statistics show of the window.

    Attributes:
        hit_rate: Hits per request that was answered.
        queue_us: Mean wait from the scheduler's door to the execution, hits included as 0.
        compute_us: Mean over requests of the time of the batch they were in.
        executions: By batch size, from 0 on, finished inside the window.
    """

    hit_rate: float
    queue_us: float
    compute_us: float
    executions: npt.NDArray[np.int64]

    @property
    def mean_batch_size(self) -> float:
        batches = int(self.executions.sum())
        sizes = np.arange(self.executions.size)
        return float((sizes * self.executions).sum() / batches) if batches else 0.0


@dataclass(frozen=True)
class Outcome:
    """What the window showed, counted as `tuner.load.latency` counts it.

    Attributes:
        throughput_infer_per_s: Inferences answered inside the window, per second of it.
        requests_per_s: Likewise.
        latencies_us: Ascending. Open loop: of the requests due inside the window, from the
            moment they were due; those never answered as slow as the slowest at least. Closed
            loop: of the requests answered inside it. Refused requests are in neither.
        unanswered_count: Of the requests due inside the window.
        rejected_count: Likewise.
        busy_cores: Of the host, in the mean of the window.
        nodes: Of each model.
        streams: By name, where there are several; the figures above are then of those that are
            not in the background, together.
    """

    throughput_infer_per_s: float
    latencies_us: npt.NDArray[np.float64]
    unanswered_count: int
    rejected_count: int
    busy_cores: float
    nodes: tuple[NodeOutcome, ...]
    requests_per_s: float = 0.0
    streams: Mapping[str, Outcome] = field(default_factory=dict)

    def of(self, stream: str) -> Outcome:
        """One stream's; for ``""`` of the mix."""
        return self.streams.get(stream, self)

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
    """The window of one load point on one model; see `simulate_network`."""
    return simulate_network(Network((scheduler,)), (service,), way, (traffic,), seed)


def simulate_network(
    network: Network,
    services: Sequence[Service],
    way: Way,
    traffics: Sequence[Traffic],
    seed: int = 0,
) -> Outcome:
    """The window of one load point.

    Args:
        network: The models' configs.
        services: What batches cost, for each model.
        way: What a request meets outside queues and models.
        traffics: The load of each stream; several are of open loops.
        seed: Of everything random. Equal seeds draw equal numbers for every config, so that
            differences are the configs' own.
    """
    memory = _run(network, services, way, traffics, seed)
    rows = memory.requests[: _sent(memory)]
    nodes = tuple(_observe_node(memory, k, traffics[0]) for k in range(memory.nodes.size))
    if len(traffics) == 1:
        return _observe(_trace(rows), traffics[0], memory, nodes)
    streams = [
        _observe(_trace(rows[rows["stream"] == k]), traffic, memory, nodes)
        for k, traffic in enumerate(traffics)
    ]
    return _together(streams, traffics)


def trace_network(
    network: Network,
    services: Sequence[Service],
    way: Way,
    traffics: Sequence[Traffic],
    seed: int = 0,
) -> tuple[Trace, Memory]:
    """The same run: its requests in the order of arrival, and all that is known at its end."""
    memory = _run(network, services, way, traffics, seed)
    return _trace(memory.requests[: _sent(memory)]), memory


def _run(
    network: Network,
    services: Sequence[Service],
    way: Way,
    traffics: Sequence[Traffic],
    seed: int,
) -> Memory:
    from tuner.twin.events import run  # numba takes a second to import

    first = traffics[0]
    count = _most_requests(network, services, way, traffics)
    if len(traffics) == 1:
        keys, levels = _cut(first.keys, count), _cut(first.levels, count)
        traffics = [replace(first, keys=keys, levels=levels)]
    memory = new_memory(network, services, way, traffics, count, seed)
    warm = first.warm_keys if network.nodes[0].cache_entries else None
    run(memory, np.zeros(0, np.int64) if warm is None else warm)
    return memory


def _sent(memory: Memory) -> int:
    host = memory.host
    return int(host["sent"] if host["closed"] else host["requests"])


def _trace(rows: Any) -> Trace:
    return Trace(*(np.ascontiguousarray(rows[name]) for name in _KEPT))


def _most_requests(
    network: Network, services: Sequence[Service], way: Way, traffics: Sequence[Traffic]
) -> int:
    """How many there are; for a closed loop, how many there can be at most."""
    traffic = traffics[0]
    if traffic.due_s is not None:
        return sum(t.due_s.size for t in traffics if t.due_s is not None)
    if traffic.keys is not None:
        return int(traffic.keys.size)
    rates = [
        _fastest(network.nodes[step.node], services[step.node], way, traffic)
        for step in network.routes[0]
    ]
    by_front = way.cores / (2.0 * way.front_s) if way.front_s > 0.0 else np.inf
    rate = min(*rates, by_front)
    return int(min(rate * traffic.end_s * 1.5 + 4 * traffic.concurrency + 64, 20_000_000))


def _fastest(scheduler: Scheduler, service: Service, way: Way, traffic: Traffic) -> float:
    """Requests per second of a closed loop that a model can do at most."""
    batch = max(scheduler.max_batch_size, 1) if scheduler.batching else traffic.request_size
    fastest_s = service.exclusive_base_s / scheduler.devices
    fastest_s = max(fastest_s, service.overlap_base_s / scheduler.instances)
    by_service = batch / traffic.request_size / fastest_s if fastest_s > 0.0 else np.inf
    return min(by_service, traffic.concurrency / max(way.base_s + fastest_s, 1e-6))


def _cut(given: npt.NDArray[np.int64] | None, count: int) -> npt.NDArray[np.int64] | None:
    return None if given is None else given[:count]


def _observe(
    requests: Trace, traffic: Traffic, memory: Memory, nodes: tuple[NodeOutcome, ...]
) -> Outcome:
    start_s, end_s = traffic.window_s
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
    answered_per_s = int((served & answered).sum()) * traffic.request_size / (end_s - start_s)
    return Outcome(
        throughput_infer_per_s=answered_per_s,
        requests_per_s=answered_per_s / traffic.request_size,
        latencies_us=latencies_s * 1e6,
        unanswered_count=missing,
        rejected_count=int(((requests.fate == REJECTED) & due_inside).sum()),
        busy_cores=float(memory.host["worked_s"]) / (end_s - start_s),
        nodes=nodes,
    )


def _together(streams: Sequence[Outcome], traffics: Sequence[Traffic]) -> Outcome:
    mixed = [s for s, t in zip(streams, traffics, strict=True) if not t.background]
    return replace(
        streams[0],
        throughput_infer_per_s=sum(s.throughput_infer_per_s for s in mixed),
        requests_per_s=sum(s.requests_per_s for s in mixed),
        latencies_us=np.sort(np.concatenate([s.latencies_us for s in mixed])),
        unanswered_count=sum(s.unanswered_count for s in mixed),
        rejected_count=sum(s.rejected_count for s in mixed),
        streams={t.stream: s for s, t in zip(streams, traffics, strict=True)},
    )


def _observe_node(memory: Memory, number: int, traffic: Traffic) -> NodeOutcome:
    start_s, end_s = traffic.window_s
    node, rows = memory.nodes[number], memory.requests
    if memory.nodes.size > 1:
        rows = rows[rows["node"] == number]
    ended_s, fate = rows["answered_s"], rows["fate"]
    inside = (ended_s >= start_s) & (ended_s < end_s) & ((fate == SERVED) | (fate == HIT))
    waits_s = rows["started_s"][inside] - rows["arrived_s"][inside]
    count = int(inside.sum())
    sizes = np.arange(int(node["max_batch"]) + 1)
    executions, busy_s = node["executions"][: sizes.size], node["busy_s"][: sizes.size]
    weight = float((sizes * executions).sum())
    return NodeOutcome(
        hit_rate=int((fate[inside] == HIT).sum()) / count if count else 0.0,
        queue_us=float(waits_s.mean()) * 1e6 if count else 0.0,
        compute_us=float((sizes * busy_s).sum() / weight) * 1e6 if weight else 0.0,
        executions=executions,
    )


def _unanswered_last(
    requests: Trace, chosen: npt.NDArray[np.bool_], end_s: float
) -> npt.NDArray[np.float64]:
    """A request that was never answered counts as slower than all others."""
    answered_s, due_s = requests.answered_s[chosen], requests.due_s[chosen]
    late = answered_s > end_s
    in_time_s = np.sort(answered_s[~late] - due_s[~late])
    return np.append(in_time_s, np.sort(np.maximum(end_s - due_s[late], in_time_s[-1])))
