"""The simulator's memory: records of scalars, and arrays; all of it plain numbers for numba.

A record for each model (``s`` in the modules beside this one), one for the host that they share
(``h``), and the rest (``m``). Requests are numbered in the order in which they are sent; behind
them come the steps of those that ask an ensemble, each of which is a request to its model. Queues
and batches are chains: ``after[r]`` is the request behind r, -1 at the end. Batches ("payloads" in
Triton) are numbered in the order in which they are handed over; those numbered ``front`` to
``back - 1`` wait for an instance. The one the batcher works on is ``current``: waiting too, or not
handed over yet, or already taken (stale).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tuner.twin.system import (
    MAX_BATCH,
    MAX_INSTANCES,
    MAX_LEVELS,
    Lock,
    Network,
    Scheduler,
    Service,
    Step,
    Traffic,
    Way,
)

#: What became of a request.
PENDING, SERVED, HIT, REJECTED = 0, 1, 2, 3
#: What an instance is doing.
IDLE, WAKING, HOST, QUEUED, DEVICE, ANSWERING, RELEASING = 0, 1, 2, 3, 4, 5, 6

#: Random factors of service times, used in turn.
NOISES = 4096

_INTEGERS = (
    # of the config
    *("instances", "max_batch", "largest_preferred", "batching", "prefetches"),
    *("request_size", "levels", "cache_entries", "pad_to"),
    # of the batcher
    *("current", "front", "back", "saturated", "next_preferred", "waiting", "queued"),
    # of the cache
    *("cached", "newest", "oldest"),
    # the host's number of the first instance; executions so far
    *("first", "executed"),
)
_TIMES = ("overlap_base_s", "overlap_item_s", "exclusive_base_s", "exclusive_item_s")
#: Those of the service and of the way, by the same names.
_OF_SERVICE = (*_TIMES, "response_s", "release_s", "pad_to")
_OF_WAY = ("slept_s", "handoff_s", "hit_s")
_REALS = (
    *("delay_s", *_TIMES, "response_s", "release_s", *_OF_WAY),
    *("window_start_s", "window_end_s"),
    # moments of the next events
    *("wake_s", "instance_s"),
)
_HOST_INTEGERS = (
    *("closed", "requests", "sent", "arrived", "coming", "fronts"),
    # cores at work, the one an instance goes on with, who waits for one
    *("cores", "running", "held", "held_core", "idle_count"),
    # steps of ensembles that ended just now
    *("ended_first", "ended_last"),
)
#: The cores' work inside the window is ``worked_s``.
_HOST_REALS = (
    *("front_s", "front_more", "end_s", "window_start_s", "window_end_s", "core_s", "worked_s"),
)
#: More cores than this are no limit to anything.
MAX_CORES = 64
#: No task, where a task's number is asked for; tasks of instances begin at -1.
NOBODY = -1 - MAX_INSTANCES
#: Batches at once: two waiting for each instance, and one in the making; a power of two.
BATCHES = 256

#: A record holds all of a model but what grows with the load: numba passes it as a single pointer.
STATE = np.dtype(
    [(name, np.int64) for name in _INTEGERS]
    + [(name, np.float64) for name in _REALS]
    + [(name, np.int64, BATCHES) for name in ("batch_first", "batch_last", "batch_size")]
    + [("batch_since_s", np.float64, BATCHES), ("batch_stale", np.int64, BATCHES)]
    + [(n, np.int64, MAX_INSTANCES) for n in ("doing", "running_first", "running_size")]
    + [(n, np.float64, MAX_INSTANCES) for n in ("until_s", "since_s", "reached_s", "noise")]
    + [("device_of", np.int64, MAX_INSTANCES)]
    # requests in order, then (odd places) those that expired and were put behind
    + [(n, np.int64, 2 * MAX_LEVELS) for n in ("queue_first", "queue_last", "queue_length")]
    + [("max_queue_size", np.int64, MAX_LEVELS), ("delays_expired", np.int64, MAX_LEVELS)]
    + [("timeout_s", np.float64, MAX_LEVELS)]
    + [("preferred", np.int64, MAX_BATCH + 1), ("executions", np.int64, MAX_BATCH + 1)]
    + [("busy_s", np.float64, MAX_BATCH + 1), ("noises", np.float64, NOISES)]
)
HOST_STATE = np.dtype(
    [(name, np.int64) for name in _HOST_INTEGERS]
    + [(name, np.float64) for name in _HOST_REALS]
    + [(n, np.int64, MAX_INSTANCES) for n in ("behind", "core_of", "node_of", "device_busy")]
    + [(n, np.float64, MAX_INSTANCES) for n in ("left_s", "slice_s")]
    + [(n, np.int64, MAX_CORES) for n in ("fronts_first", "fronts_last", "idle")]
    + [(n, np.int64, MAX_CORES) for n in ("ready_first", "ready_last")]
)
REQUEST = np.dtype(
    [
        ("due_s", np.float64),
        ("arrived_s", np.float64),  # in the queue
        ("started_s", np.float64),  # of execution; infinite before
        ("answered_s", np.float64),  # at the client; infinite before
        ("way_in_s", np.float64),
        ("way_out_s", np.float64),
        ("after", np.int32),
        ("work_s", np.float64),  # while it waits for a core,
        ("behind", np.int32),  # and the task that waits behind it
        ("core", np.int16),
        ("key", np.int32),
        ("level", np.int8),
        ("fate", np.int8),
        ("stream", np.int8),
        ("node", np.int8),
        # Of a request to an ensemble its first step, of a step its request, of others -1;
        ("link", np.int32),
        ("bits", np.int32),  # the steps that have ended, and those that must have;
        ("steps", np.int8),  # how many there are, and how many are left (-1: one was refused).
        ("left", np.int8),
    ]
)
#: An entry of a heap: a request on its way to the server, or a task of the host.
ENTRY = np.dtype([("at", np.float64), ("number", np.int64)])
KEY = np.dtype([("newer", np.int64), ("older", np.int64), ("cached", np.int64)])


class Memory(NamedTuple):
    """All of it, each an array of records; a number of each model's."""

    nodes: Any  # STATE
    host: Any  # HOST_STATE, one
    requests: Any  # REQUEST
    coming: Any  # ENTRY, closed loop only
    tasks: Any  # ENTRY, at the end of their turn
    keys: Any  # KEY


def new_memory(
    network: Network,
    services: Sequence[Service],
    way: Way,
    traffics: Sequence[Traffic],
    count: int,
    seed: int,
) -> Memory:
    """All of it, with everything random drawn: equal seeds, equal numbers for every config.

    Args:
        network: Models and routes.
        services: Of each model.
        way: Of all requests.
        traffics: Of each route; all of one window.
        count: Of requests; of a closed loop, at most.
        seed: Of the draws.
    """
    normal, ways = _draws(seed, len(network.nodes), count)
    nodes = np.zeros(len(network.nodes), STATE)
    host = _new_host(way, traffics[0], count)
    slots: dict[tuple[int, ...], int] = {}
    first = 0
    for k, (scheduler, service) in enumerate(zip(network.nodes, services, strict=True)):
        asked = zip(traffics, network.routes, strict=True)
        size = max((t.request_size for t, r in asked if any(s.node == k for s in r)), default=1)
        _fill_node(nodes[k], scheduler, service, way, traffics[0], size)
        nodes[k]["first"] = first
        for i, device in enumerate(scheduler.device_of):
            slot = _SLOTS[service.lock](device, k, i)
            nodes[k]["device_of"][i] = slots.setdefault(slot, len(slots))
        host[0]["node_of"][first : first + scheduler.instances] = k
        first += scheduler.instances
        sigma = math.sqrt(math.log1p(service.spread**2))
        nodes[k]["noises"] = np.exp(sigma * normal[k] - sigma**2 / 2.0)
    keys = [k.max() for t in traffics for k in (t.keys, t.warm_keys) if k is not None and k.size]
    return Memory(
        nodes=nodes,
        host=host[0],
        requests=_new_requests(network, way, traffics, count, ways),
        coming=np.zeros(traffics[0].concurrency + 1, ENTRY),
        tasks=np.zeros(count + first + 1, ENTRY),
        keys=np.zeros(1 + int(max(keys, default=0)), KEY),
    )


#: What an instance holds while it is on a device, from the device, its model and itself.
_SLOTS: dict[Lock, Callable[[int, int, int], tuple[int, ...]]] = {
    Lock.DEVICE: lambda device, _model, _instance: (device,),
    Lock.MODEL: lambda device, model, _instance: (device, model),
    Lock.NONE: lambda device, model, instance: (device, model, instance),
}


@lru_cache(maxsize=16)
def _draws(seed: int, nodes: int, count: int) -> tuple[Any, Any]:
    """For service times and ways; a fit simulates the same loads over and over."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((nodes, NOISES)), rng.standard_exponential((2, count))


def _fill_node(
    node: Any, scheduler: Scheduler, service: Service, way: Way, traffic: Traffic, size: int
) -> None:
    largest = max(scheduler.max_batch_size, size)
    preferred = [min(p, largest) for p in scheduler.preferred_batch_sizes or (largest,)]
    policies = scheduler.policies
    values: dict[str, float] = {
        "instances": scheduler.instances,
        "max_batch": largest,
        "largest_preferred": max(preferred),
        "batching": scheduler.batching,
        "prefetches": scheduler.prefetches,
        "request_size": size,
        "levels": len(policies),
        "cache_entries": scheduler.cache_entries,
        "newest": -1,
        "oldest": -1,
        "delay_s": scheduler.max_queue_delay_s,
        **{name: getattr(service, name) for name in _OF_SERVICE},
        **{name: getattr(way, name) for name in _OF_WAY},
        "window_start_s": traffic.window_s[0],
        "window_end_s": traffic.window_s[1],
        "wake_s": np.inf if not scheduler.batching else 0.5,
        "instance_s": np.inf,
    }
    for name, value in values.items():
        node[name] = value
    node["until_s"][:] = np.inf
    node["batch_first"][:] = node["batch_last"][:] = -1
    node["preferred"][preferred] = 1
    node["max_queue_size"][: len(policies)] = [p.max_queue_size for p in policies]
    node["timeout_s"][: len(policies)] = [p.timeout_s for p in policies]
    node["delays_expired"][: len(policies)] = [p.delays_expired for p in policies]


def _new_host(way: Way, traffic: Traffic, count: int) -> Any:
    host = np.zeros(1, HOST_STATE)
    values: dict[str, float] = {
        "closed": traffic.due_s is None,
        "requests": count,
        "held": NOBODY,
        "cores": min(way.cores, MAX_CORES),
        "ended_first": -1,
        "front_s": way.front_s,
        "front_more": way.front_more,
        "end_s": traffic.end_s,
        "window_start_s": traffic.window_s[0],
        "window_end_s": traffic.window_s[1],
        "core_s": np.inf,
    }
    for name, value in values.items():
        host[name] = value
    cores = int(host[0]["cores"])
    host["idle_count"] = cores
    host["idle"] = np.arange(MAX_CORES)[::-1] % cores
    host["fronts_first"] = host["ready_first"] = -1
    return host


def _new_requests(
    network: Network, way: Way, traffics: Sequence[Traffic], count: int, ways: Any
) -> Any:
    """Those of all streams in the order in which they reach the server, their steps behind them."""
    drawn = way.base_s / 2.0 + way.spread_s / 2.0 * ways
    sizes = [count if t.due_s is None else t.due_s.size for t in traffics]
    lengths = [len(route) if len(route) > 1 else 0 for route in network.routes]
    found = np.empty(count + sum(map(int.__mul__, sizes, lengths)), REQUEST)
    found["started_s"] = found["answered_s"] = np.inf
    found["after"] = found["link"] = -1
    found["fate"] = PENDING
    found["level"] = found["key"] = 0
    end = 0
    for k, (traffic, size) in enumerate(zip(traffics, sizes, strict=True)):
        rows, begin, end = found[end : end + size], end, end + size
        rows["due_s"] = 0.0 if traffic.due_s is None else traffic.due_s
        rows["way_in_s"], rows["way_out_s"] = drawn[:, begin:end]
        # A connection keeps the order of requests: what is held up holds up those behind it.
        rows["arrived_s"] = np.maximum.accumulate(rows["due_s"] + rows["way_in_s"])
        rows["stream"], rows["node"] = k, network.routes[k][0].node
        if traffic.keys is not None:
            rows["key"] = traffic.keys
        if traffic.levels is not None:
            rows["level"] = traffic.levels
    if len(traffics) > 1:
        found[:count] = found[:count][np.argsort(found["arrived_s"][:count], kind="stable")]
    place = count
    for k, length in enumerate(lengths):
        if length:
            wholes = np.flatnonzero(found["stream"][:count] == k)
            rows = found[place : place + wholes.size * length].reshape(wholes.size, length)
            _plan_steps(found, wholes, rows, network.routes[k], place)
            place += rows.size
    return found


def _plan_steps(requests: Any, wholes: Any, rows: Any, route: tuple[Step, ...], first: int) -> None:
    """``rows`` of steps, those of a request side by side, for requests to an ensemble."""
    requests["node"][wholes] = -1
    requests["link"][wholes] = first + len(route) * np.arange(wholes.size)
    requests["steps"][wholes] = requests["left"][wholes] = len(route)
    requests["bits"][wholes] = 0
    rows["link"] = wholes[:, None]
    rows["node"] = [step.node for step in route]
    rows["bits"] = [sum(1 << n for n in step.needs) for step in route]
