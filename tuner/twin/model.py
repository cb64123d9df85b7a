"""From a candidate to what the simulator knows of it: `tuner.twin.system.Scheduler`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tuner.modelconfig.base import Base
from tuner.space.candidate import Candidate
from tuner.spec.paths import (
    CACHE_ENABLE,
    DELAY,
    DYNAMIC_BATCHING,
    MAX_BATCH_SIZE,
    PREFERRED,
    is_inside,
    is_instance_count,
)
from tuner.twin.system import MAX_BATCH, MAX_INSTANCES, MAX_LEVELS, QueuePolicy, Scheduler

#: Fields of ModelConfig that change what the twin simulates. A field that starts with one of
#: these names belongs to it; any other field may change what a batch costs.
SIMULATED = (
    MAX_BATCH_SIZE,
    PREFERRED,
    DELAY,
    "dynamic_batching.default_queue_policy",
    "dynamic_batching.priority_queue_policy",
    "dynamic_batching.priority_levels",
    "dynamic_batching.default_priority_level",
    CACHE_ENABLE,
)
#: Whole messages: on or off.
_BLOCKS = (DYNAMIC_BATCHING, "response_cache")


@dataclass(frozen=True)
class Unmodelled:
    """Why a candidate cannot be simulated, in a sentence."""

    reason: str


def unmodelled_paths(candidate: Candidate) -> tuple[str, ...]:
    """The candidate's fields that the twin knows nothing about.

    Such a field may change what a batch costs: a fit holds only for candidates that agree in all
    of them.
    """
    return tuple(path for path in candidate.of("") if not _is_simulated(path))


@lru_cache(maxsize=1024)
def _is_simulated(path: str) -> bool:
    if path in _BLOCKS or is_instance_count(path):
        return True
    return any(path == known or is_inside(path, known) for known in SIMULATED)


def service_key(candidate: Candidate) -> tuple[tuple[str, Any], ...]:
    """What must be equal for two candidates to have the same service times."""
    fields = candidate.of("")
    return tuple((path, fields[path]) for path in unmodelled_paths(candidate))


def scheduler_of(
    candidate: Candidate, base: Base, *, devices: int = 1, response_bytes: int | None = None
) -> Scheduler | Unmodelled:
    """The scheduler that Triton would run for a candidate.

    Args:
        candidate: Fields and size of the cache.
        base: The model's config.
        devices: GPUs the server sees (1 for CPUs).
        response_bytes: Size of a cache entry; needed for candidates with a cache.
    """
    config = base.message(candidate.of(""))
    refusal = _refusal(config, devices)
    if refusal is not None:
        return Unmodelled(refusal)
    entries = _cache_entries(config, candidate.cache_bytes, response_bytes)
    if entries is None:
        return Unmodelled("the size of a cached response is not known")
    return _scheduler(config, devices, entries)


def _refusal(config: Any, devices: int) -> str | None:
    if config.HasField("sequence_batching"):
        return "sequence batching is not simulated"
    if config.HasField("ensemble_scheduling"):
        return "ensembles are not simulated"
    batching = config.dynamic_batching
    if batching.preserve_ordering:
        return "preserve_ordering is not simulated"
    if config.model_transaction_policy.decoupled:
        return "decoupled models are not simulated"
    if config.max_batch_size > MAX_BATCH:
        return f"more than {MAX_BATCH} inferences in a batch are not simulated"
    if batching.priority_levels > MAX_LEVELS:
        return f"more than {MAX_LEVELS} priority levels are not simulated"
    if len({g.kind == g.KIND_CPU for g in _groups(config)}) > 1:
        return "instances on CPUs and on GPUs at once are not simulated"
    if len(_place(config, devices)) > MAX_INSTANCES:
        return f"more than {MAX_INSTANCES} instances are not simulated"
    return None


def _scheduler(config: Any, devices: int, cache_entries: int) -> Scheduler:
    batching = config.dynamic_batching
    on = config.HasField("dynamic_batching") and config.max_batch_size > 1
    placed = _place(config, devices)
    used = max(placed) + 1
    in_turn = placed == tuple(i % used for i in range(len(placed)))
    policies = _policies(batching) if on else (QueuePolicy(),)
    limited = any(p.max_queue_size or p.timeout_s for p in policies)
    overrides = batching.default_queue_policy.allow_timeout_override
    return Scheduler(
        instances=len(placed),
        max_batch_size=max(config.max_batch_size, 1),
        devices=used,
        batching=on,
        preferred_batch_sizes=tuple(sorted(batching.preferred_batch_size)) if on else (),
        max_queue_delay_s=batching.max_queue_delay_microseconds / 1e6 if on else 0.0,
        policies=policies,
        prefetches=not (limited or overrides or batching.priority_levels),
        cache_entries=cache_entries,
        placed=() if in_turn else placed,
    )


def _groups(config: Any) -> list[Any]:
    return [g for g in config.instance_group if not g.passive]


def _place(config: Any, devices: int) -> tuple[int, ...]:
    """Device of each instance; ``count`` is per GPU of its group (model_config.proto).

    Those of a group without GPUs run on each; on CPUs, and where the model places itself, there
    are ``count`` in all. Devices that nothing runs on are left out.
    """
    turns: list[tuple[int, int]] = []
    for group in _groups(config):
        places: Sequence[int] = range(devices)
        if group.kind in (group.KIND_CPU, group.KIND_MODEL):
            places = (0,)
        elif group.gpus:
            places = group.gpus
        turns += [(turn, place) for turn in range(max(group.count, 1)) for place in places]
    turns = turns or [(0, place) for place in range(devices)]
    known = {place: i for i, place in enumerate(sorted({place for _, place in turns}))}
    return tuple(known[place] for _, place in sorted(turns))


def _policies(batching: Any) -> tuple[QueuePolicy, ...]:
    """One for each priority level; without levels the default policy."""
    levels = batching.priority_levels
    own = batching.priority_queue_policy
    if not levels:
        return (_policy(batching.default_queue_policy),)
    default = batching.default_queue_policy
    return tuple(_policy(own.get(level, default)) for level in range(1, levels + 1))


def _policy(policy: Any) -> QueuePolicy:
    return QueuePolicy(
        policy.max_queue_size,
        policy.default_timeout_microseconds / 1e6,
        policy.timeout_action == policy.DELAY,
    )


def _cache_entries(config: Any, cache_bytes: int | None, response_bytes: int | None) -> int | None:
    if not config.response_cache.enable:
        return 0
    if cache_bytes is None:
        return 0  # the server has no cache, whatever the model says
    return None if response_bytes is None else cache_bytes // response_bytes
