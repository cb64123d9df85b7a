"""From a candidate to what the simulator knows of it: `tuner.twin.system.Scheduler`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.modelconfig.path import set_fields
from tuner.space import cache
from tuner.space.candidate import Candidate
from tuner.twin.system import QueuePolicy, Scheduler

#: Fields of ModelConfig that change what the twin simulates. A field that starts with one of
#: these names belongs to it; any other field may change what a batch costs.
SIMULATED = (
    "max_batch_size",
    "instance_group.count",
    "instance_group[0].count",
    "dynamic_batching.preferred_batch_size",
    "dynamic_batching.max_queue_delay_microseconds",
    "dynamic_batching.default_queue_policy",
    "dynamic_batching.priority_queue_policy",
    "dynamic_batching.priority_levels",
    "dynamic_batching.default_priority_level",
    "response_cache.enable",
)
#: Whole messages: on or off.
_BLOCKS = ("dynamic_batching", "response_cache")
#: Most of each that the simulator's memory has room for.
MAX_INSTANCES, MAX_BATCH, MAX_LEVELS = 64, 1024, 16


@dataclass(frozen=True)
class Unmodelled:
    """Why a candidate cannot be simulated, in a sentence."""

    reason: str


def unmodelled_paths(candidate: Candidate) -> tuple[str, ...]:
    """The candidate's fields that the twin knows nothing about.

    Such a field may change what a batch costs: a fit holds only for candidates that agree in all
    of them.
    """
    return tuple(path for path in candidate.fields if not _is_simulated(path))


def _is_simulated(path: str) -> bool:
    if path in _BLOCKS:
        return True
    return any(path == known or path.startswith(f"{known}.") for known in SIMULATED)


def service_key(candidate: Candidate) -> tuple[tuple[str, Any], ...]:
    """What must be equal for two candidates to have the same service times."""
    return tuple((path, candidate.fields[path]) for path in unmodelled_paths(candidate))


def scheduler_of(
    candidate: Candidate, base: Any, *, devices: int = 1, response_bytes: int | None = None
) -> Scheduler | Unmodelled:
    """The scheduler that Triton would run for a candidate.

    Args:
        candidate: Fields and server arguments.
        base: Triton's ModelConfig message of the model as it is; not changed.
        devices: GPUs the server sees (1 for CPUs).
        response_bytes: Size of a cache entry; needed for candidates with a cache.
    """
    config = type(base)()
    config.CopyFrom(base)
    real = {p: v for p, v in candidate.fields.items() if p != cache.SIZE}
    set_fields(config, real)
    refusal = _refusal(config)
    if refusal is not None:
        return Unmodelled(refusal)
    entries = _cache_entries(config, candidate.server_args, response_bytes)
    if entries is None:
        return Unmodelled("the size of a cached response is not known")
    return _scheduler(config, devices, entries)


def _refusal(config: Any) -> str | None:
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
    if sum(max(g.count, 1) * max(len(g.gpus), 1) for g in config.instance_group) > MAX_INSTANCES:
        return f"more than {MAX_INSTANCES} instances are not simulated"
    return None


def _scheduler(config: Any, devices: int, cache_entries: int) -> Scheduler:
    batching = config.dynamic_batching
    on = config.HasField("dynamic_batching") and config.max_batch_size > 1
    instances, used = _instances(config, devices)
    policies = _policies(batching) if on else (QueuePolicy(),)
    limited = any(p.max_queue_size or p.timeout_s for p in policies)
    overrides = batching.default_queue_policy.allow_timeout_override
    return Scheduler(
        instances=instances,
        max_batch_size=max(config.max_batch_size, 1),
        devices=used,
        batching=on,
        preferred_batch_sizes=tuple(sorted(batching.preferred_batch_size)) if on else (),
        max_queue_delay_s=batching.max_queue_delay_microseconds / 1e6 if on else 0.0,
        policies=policies,
        prefetches=not (limited or overrides or batching.priority_levels),
        cache_entries=cache_entries,
    )


def _instances(config: Any, devices: int) -> tuple[int, int]:
    """Instances in all and the devices they run on; ``count`` is per GPU (model_config.proto)."""
    groups = [g for g in config.instance_group if not g.passive]
    if not groups:
        return devices, devices
    on_cpu = all(g.kind == g.KIND_CPU for g in groups)
    used = {gpu for g in groups for gpu in g.gpus}
    devices = 1 if on_cpu else (len(used) or devices)
    per_group = [
        max(g.count, 1) * (1 if g.kind == g.KIND_CPU else len(g.gpus) or devices) for g in groups
    ]
    return sum(per_group), devices


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


def _cache_entries(
    config: Any, server_args: tuple[str, ...], response_bytes: int | None
) -> int | None:
    if not config.response_cache.enable:
        return 0
    size = cache.split_args(server_args)[1]
    if size is None:
        return 0  # the server has no cache, whatever the model says
    return None if response_bytes is None else size // response_bytes
