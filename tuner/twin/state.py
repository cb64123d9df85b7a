"""The simulator's memory: one record of scalars, and arrays; all of it plain numbers for numba.

Requests are numbered in the order in which they are sent. Queues and batches are chains:
``after[r]`` is the request behind r, -1 at the end. Batches ("payloads" in Triton) are numbered
in the order in which they are handed over; those numbered ``front`` to ``back - 1`` wait for an
instance. The one the batcher works on is ``current``: waiting too, or not handed over yet, or
already taken (stale).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tuner.twin.system import MAX_BATCH, MAX_INSTANCES, MAX_LEVELS, Scheduler, Service, Traffic, Way

#: What became of a request.
PENDING, SERVED, HIT, REJECTED = 0, 1, 2, 3
#: What an instance is doing.
IDLE, WAKING, HOST, QUEUED, DEVICE, ANSWERING, RELEASING = 0, 1, 2, 3, 4, 5, 6

#: Random factors of service times, used in turn.
_NOISES = 4096

_INTEGERS = (
    # of the config
    *("instances", "max_batch", "largest_preferred", "batching", "prefetches"),
    *("request_size", "levels", "cache_entries", "pad_to", "closed", "requests"),
    # of the batcher
    *("current", "front", "back", "saturated", "next_preferred", "waiting", "queued"),
    # of the cache
    *("cached", "newest", "oldest"),
    # of the rest
    *("sent", "arrived", "coming", "fronts", "executed"),
    # of the host: cores at work, the one an instance goes on with, who waits for one
    *("cores", "running", "held", "held_core", "idle_count"),
)
_REALS = (
    *("delay_s", "overlap_base_s", "overlap_item_s", "exclusive_base_s", "exclusive_item_s"),
    *("response_s", "release_s", "front_s", "front_more", "slept_s", "handoff_s"),
    *("hit_s", "end_s"),
    *("window_start_s", "window_end_s"),
    # moments of the next events, and the cores' work inside the window
    *("wake_s", "instance_s", "core_s", "worked_s"),
)
#: More cores than this are no limit to anything.
MAX_CORES = 64
#: No task, where a task's number is asked for; tasks of instances begin at -1.
NOBODY = -1 - MAX_INSTANCES
#: Batches at once: two waiting for each instance, and one in the making; a power of two.
BATCHES = 256

#: One record holds all but what grows with the load: numba passes it as a single pointer.
STATE = np.dtype(
    [(name, np.int64) for name in _INTEGERS]
    + [(name, np.float64) for name in _REALS]
    + [(name, np.int64, BATCHES) for name in ("batch_first", "batch_last", "batch_size")]
    + [("batch_since_s", np.float64, BATCHES), ("batch_stale", np.int64, BATCHES)]
    + [(n, np.int64, MAX_INSTANCES) for n in ("doing", "running_first", "running_size")]
    + [(n, np.float64, MAX_INSTANCES) for n in ("until_s", "since_s", "reached_s", "noise")]
    + [(n, np.int64, MAX_INSTANCES) for n in ("behind", "core_of")]
    + [(n, np.int64, MAX_CORES) for n in ("fronts_first", "fronts_last", "idle")]
    + [(n, np.int64, MAX_CORES) for n in ("ready_first", "ready_last")]
    + [(n, np.float64, MAX_INSTANCES) for n in ("left_s", "slice_s")]
    + [(n, np.int64, MAX_INSTANCES) for n in ("device_of", "device_busy")]
    # requests in order, then (odd places) those that expired and were put behind
    + [(n, np.int64, 2 * MAX_LEVELS) for n in ("queue_first", "queue_last", "queue_length")]
    + [("max_queue_size", np.int64, MAX_LEVELS), ("delays_expired", np.int64, MAX_LEVELS)]
    + [("timeout_s", np.float64, MAX_LEVELS)]
    + [("preferred", np.int64, MAX_BATCH + 1), ("executions", np.int64, MAX_BATCH + 1)]
    + [("busy_s", np.float64, MAX_BATCH + 1)]
)
REQUEST = np.dtype(
    [
        ("due_s", np.float64),
        ("arrived_s", np.float64),  # in the queue
        ("started_s", np.float64),  # of execution; infinite before
        ("answered_s", np.float64),  # at the client; infinite before
        ("way_in_s", np.float64),
        ("way_out_s", np.float64),
        ("after", np.int64),
        ("work_s", np.float64),  # while it waits for a core,
        ("behind", np.int32),  # and the task that waits behind it
        ("core", np.int16),
        ("key", np.int32),
        ("level", np.int16),
        ("fate", np.int16),
    ]
)
#: An entry of a heap: a request on its way to the server, or a task of the host.
ENTRY = np.dtype([("at", np.float64), ("number", np.int64)])
KEY = np.dtype([("newer", np.int64), ("older", np.int64), ("cached", np.int64)])


class Memory(NamedTuple):
    """What grows with the load, each an array of records."""

    requests: Any  # REQUEST
    coming: Any  # ENTRY, closed loop only
    tasks: Any  # ENTRY, at the end of their turn
    keys: Any  # KEY
    noise: npt.NDArray[np.float64]


def new_state(
    scheduler: Scheduler, service: Service, way: Way, traffic: Traffic, count: int
) -> Any:
    """The record, in an array of length 1."""
    largest = max(scheduler.max_batch_size, traffic.request_size)
    preferred = [min(p, largest) for p in scheduler.preferred_batch_sizes or (largest,)]
    policies = scheduler.policies
    values: dict[str, float] = {
        "instances": scheduler.instances,
        "max_batch": largest,
        "largest_preferred": max(preferred),
        "batching": scheduler.batching,
        "prefetches": scheduler.prefetches,
        "request_size": traffic.request_size,
        "levels": len(policies),
        "cache_entries": scheduler.cache_entries,
        "pad_to": service.pad_to,
        "closed": traffic.due_s is None,
        "requests": count,
        "held": NOBODY,
        "newest": -1,
        "oldest": -1,
        "delay_s": scheduler.max_queue_delay_s,
        "overlap_base_s": service.overlap_base_s,
        "overlap_item_s": service.overlap_item_s,
        "exclusive_base_s": service.exclusive_base_s,
        "exclusive_item_s": service.exclusive_item_s,
        "response_s": service.response_s,
        "release_s": service.release_s,
        "cores": min(way.cores, MAX_CORES),
        "front_s": way.front_s,
        "front_more": way.front_more,
        "slept_s": way.slept_s,
        "handoff_s": way.handoff_s,
        "hit_s": way.hit_s,
        "end_s": traffic.end_s,
        "window_start_s": traffic.window_s[0],
        "window_end_s": traffic.window_s[1],
        "wake_s": np.inf if not scheduler.batching else 0.5,
        "instance_s": np.inf,
        "core_s": np.inf,
    }
    states = np.zeros(1, STATE)
    for name, value in values.items():
        states[name] = value
    state = states[0]
    state["until_s"][:] = np.inf
    state["idle_count"] = int(state["cores"])
    state["idle"][:] = np.arange(MAX_CORES)[::-1] % int(state["cores"])
    state["fronts_first"][:] = state["ready_first"][:] = -1
    state["batch_first"][:] = state["batch_last"][:] = -1
    state["device_of"][: scheduler.instances] = scheduler.device_of
    state["preferred"][preferred] = 1
    state["max_queue_size"][: len(policies)] = [p.max_queue_size for p in policies]
    state["timeout_s"][: len(policies)] = [p.timeout_s for p in policies]
    state["delays_expired"][: len(policies)] = [p.delays_expired for p in policies]
    return states


def new_memory(
    scheduler: Scheduler, service: Service, way: Way, traffic: Traffic, count: int, seed: int
) -> Memory:
    """All arrays, with everything random drawn: equal seeds, equal numbers for every config."""
    rng = np.random.default_rng(seed)
    sigma = math.sqrt(math.log1p(service.spread**2))
    noise = np.exp(sigma * rng.standard_normal(_NOISES) - sigma**2 / 2.0)
    requests = np.empty(count, REQUEST)
    for name in ("way_in_s", "way_out_s"):
        requests[name] = way.base_s / 2.0 + way.spread_s / 2.0 * rng.standard_exponential(count)
    requests["due_s"] = 0.0 if traffic.due_s is None else traffic.due_s
    # A connection keeps the order of requests: what is held up holds up those behind it.
    requests["arrived_s"] = np.maximum.accumulate(requests["due_s"] + requests["way_in_s"])
    requests["started_s"] = requests["answered_s"] = np.inf
    requests["after"] = -1
    requests["fate"] = PENDING
    requests["key"] = 0 if traffic.keys is None else traffic.keys
    requests["level"] = 0 if traffic.levels is None else traffic.levels
    asked = [k.max() for k in (traffic.keys, traffic.warm_keys) if k is not None and k.size]
    return Memory(
        requests=requests,
        coming=np.zeros(traffic.concurrency + 1, ENTRY),
        tasks=np.zeros(count + scheduler.instances + 1, ENTRY),
        keys=np.zeros(1 + int(max(asked, default=0)), KEY),
        noise=noise,
    )
