"""From a candidate to what the simulator knows of it: `tuner.twin.system.Network`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.modelconfig.served import Served
from tuner.space.candidate import Candidate
from tuner.twin.system import (
    MAX_BATCH,
    MAX_INSTANCES,
    MAX_LEVELS,
    MAX_STEPS,
    Network,
    QueuePolicy,
    Scheduler,
    Step,
)


@dataclass(frozen=True)
class Unmodelled:
    """Why a candidate cannot be simulated, in a sentence."""

    reason: str


@dataclass(frozen=True)
class Plan:
    """Who answers the requests of a run.

    Attributes:
        labels: The models that compute, the nodes of each network of the run.
        routes: Of each stream, see `tuner.twin.system.Network`.
        whole: Labels of ensembles.
    """

    labels: tuple[str, ...]
    routes: tuple[tuple[Step, ...], ...]
    whole: tuple[str, ...]

    @property
    def alone(self) -> bool:
        """One model is asked, by one stream."""
        return self.routes == ((Step(0),),) and not self.whole


def plan_of(served: Served, asked: Sequence[str]) -> Plan | Unmodelled:
    """The ways of requests for the models ``asked``, by label, one for each stream."""
    labels: list[str] = []
    whole: list[str] = []
    routes = []
    for label in asked:
        route: list[Step] = []
        _extend(route, served, label, (), labels, whole)
        routes.append(tuple(route))
    if any(served.models[label].parts for label in labels):
        return Unmodelled("what a model's own code asks of others is not simulated")
    if max(map(len, routes)) > MAX_STEPS:
        return Unmodelled(f"ensembles of more than {MAX_STEPS} steps are not simulated")
    ensembles = (served.models[label].base.completed.ensemble_scheduling for label in whole)
    if any(getattr(e, "max_inflight_requests", 0) for e in ensembles):
        return Unmodelled("max_inflight_requests is not simulated")
    return Plan(tuple(labels), tuple(routes), tuple(whole))


def _extend(
    route: list[Step],
    served: Served,
    label: str,
    needs: tuple[int, ...],
    labels: list[str],
    whole: list[str],
) -> tuple[int, ...]:
    """Adds a model's step, or an ensemble's, which begin after ``needs``; what it ends with."""
    steps = list(served.models[label].base.completed.ensemble_scheduling.step)
    if not steps:
        if label not in labels:
            labels.append(label)
        route.append(Step(labels.index(label), needs))
        return (len(route) - 1,)
    whole.append(label)
    made_by: dict[str, tuple[int, ...]] = {}
    ends: tuple[int, ...] = ()
    while steps:
        coming = {tensor for step in steps for tensor in step.output_map.values()}
        ready = (s for s in steps if coming.isdisjoint(s.input_map.values()))
        step = next(ready, steps[0])
        steps.remove(step)
        before = {n for t in step.input_map.values() for n in made_by.get(t, ())}
        part = step.model_name
        made = _extend(route, served, part, tuple(sorted(before)) or needs, labels, whole)
        made_by.update(dict.fromkeys(step.output_map.values(), made))
        ends += made
    return ends


def network_of(
    candidate: Candidate,
    served: Served,
    plan: Plan,
    *,
    devices: int = 1,
    response_bytes: int | None = None,
) -> Network | Unmodelled:
    """The schedulers that Triton would run for a candidate.

    Args:
        candidate: Fields of the models, and size of the cache.
        served: The models' configs.
        plan: Of the run.
        devices: GPUs the server sees (1 for CPUs).
        response_bytes: Size of a cache entry; needed for candidates with a cache.
    """
    configs = served.configs(candidate.models)
    nodes = [configs[label] for label in plan.labels]
    cached = any(configs[label].response_cache.enable for label in (*plan.labels, *plan.whole))
    if cached and candidate.cache_bytes is not None and not plan.alone:
        return Unmodelled("a response cache beside several models is not simulated")
    refusal = next((why for config in nodes if (why := _refusal(config))), None)
    if refusal is not None:
        return Unmodelled(refusal)
    spots = [_place(config, devices) for config in nodes]
    if sum(len(own) for own in spots) > MAX_INSTANCES:
        return Unmodelled(f"more than {MAX_INSTANCES} instances are not simulated")
    known = {spot: i for i, spot in enumerate(sorted({s for own in spots for s in own}))}
    found = []
    for config, own in zip(nodes, spots, strict=True):
        entries = _cache_entries(config, candidate.cache_bytes, response_bytes)
        if entries is None:
            return Unmodelled("the size of a cached response is not known")
        found.append(_scheduler(config, tuple(known[spot] for spot in own), entries))
    return Network(tuple(found), plan.routes)


def _refusal(config: Any) -> str | None:
    if config.HasField("sequence_batching"):
        return "sequence batching is not simulated"
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
    return None


def _scheduler(config: Any, placed: tuple[int, ...], cache_entries: int) -> Scheduler:
    batching = config.dynamic_batching
    on = config.HasField("dynamic_batching") and config.max_batch_size > 1
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


#: Where instances are that are on no GPU.
_HOST = -1


def _place(config: Any, devices: int) -> tuple[int, ...]:
    """Device of each instance; ``count`` is per GPU of its group (model_config.proto).

    Those of a group without GPUs run on each; on CPUs, and where the model places itself, there
    are ``count`` in all.
    """
    turns: list[tuple[int, int]] = []
    for group in _groups(config):
        places: Sequence[int] = range(devices)
        if group.kind in (group.KIND_CPU, group.KIND_MODEL):
            places = (_HOST,)
        elif group.gpus:
            places = group.gpus
        turns += [(turn, place) for turn in range(max(group.count, 1)) for place in places]
    turns = turns or [(0, place) for place in range(devices)]
    return tuple(place for _, place in sorted(turns))


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
