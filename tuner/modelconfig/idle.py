"""Settings of a model config that load but do nothing: a search over them measures noise.

Each function says how tritonserver 2.51 (24.10) answered when it was tried ("loads"), or "source"
where it was only read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.modelconfig.rules import Rule, Violation, is_completed, queue_policies
from tuner.modelconfig.schema import ModelConfig

_DEFAULT_HOST_POLICIES = ("cpu", "model", "gpu_")


def without_effect(config: ModelConfig, *, completes: bool = False) -> list[Violation]:
    """Settings that load and then do nothing, alone or on a server without further arguments.

    Args:
        config: As asked for.
        completes: As in `violations`; max_batch_size may be filled in too.
    """
    found = [] if completes else [*_batcher_without_batches(config)]
    return found + [found for rule in _IDLE for found in rule(config)]


def _batcher_without_batches(config: ModelConfig) -> Iterator[Violation]:
    """dynamic_batching with max_batch_size 0: loads, and every batch is one request."""
    batches = config.max_batch_size or is_completed(config)
    if config.HasField("dynamic_batching") and not batches:
        yield Violation(
            Rule.BATCHER_WITHOUT_BATCHES,
            "dynamic_batching",
            "dynamic_batching forms no batches while max_batch_size is 0",
            "set max_batch_size to 1 or more",
        )


def _instance_count(config: ModelConfig) -> Iterator[Violation]:
    """Below 0: loads, with Triton's default count."""
    for index, group in enumerate(config.instance_group):
        if group.count < 0:
            path = f"instance_group[{index}].count"
            text = f"instance count {group.count} is read as unset"
            yield Violation(Rule.INSTANCE_COUNT, path, text)


def _policies_without_levels(config: ModelConfig) -> Iterator[Violation]:
    """priority_queue_policy without priority_levels: loads; the policies are unused (source)."""
    batching = config.dynamic_batching
    if batching.priority_queue_policy and not batching.priority_levels:
        yield Violation(
            Rule.PRIORITY_LEVEL,
            "dynamic_batching.priority_queue_policy",
            "priority_queue_policy does nothing without priority_levels",
            "set priority_levels and default_priority_level",
        )


def _timeout_override(config: ModelConfig) -> Iterator[Violation]:
    """allow_timeout_override without a default timeout (PolicyQueue::Enqueue, source)."""
    for path, policy in queue_policies(config):
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            yield Violation(
                Rule.TIMEOUT_OVERRIDE,
                f"{path}.allow_timeout_override",
                "allow_timeout_override does nothing without default_timeout_microseconds: "
                "a request may only shorten the default",
                "set default_timeout_microseconds",
            )


def _sequence_delay(config: ModelConfig) -> Iterator[Violation]:
    """Direct strategy: the delay counts only with minimum_slot_utilization (model_config.proto)."""
    direct = config.sequence_batching.direct
    if direct.max_queue_delay_microseconds and not direct.minimum_slot_utilization:
        yield Violation(
            Rule.SEQUENCE_DELAY,
            "sequence_batching.direct.max_queue_delay_microseconds",
            "max_queue_delay_microseconds does nothing without minimum_slot_utilization",
        )


def _needs_flags(config: ModelConfig) -> Iterator[Violation]:
    """Cache, host policies and rate limits need the model's and the server's consent: loads."""
    if config.response_cache.enable:
        yield Violation(
            Rule.CACHE_FLAG,
            "response_cache.enable",
            "response_cache does nothing on a server started without --cache-config",
            "start tritonserver with --cache-config=local,size=BYTES",
        )
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}]"
        policy = group.host_policy
        if policy and not policy.startswith(_DEFAULT_HOST_POLICIES):
            text = f"host policy {policy!r} does nothing on a server that does not define it"
            yield Violation(
                Rule.HOST_POLICY, f"{path}.host_policy", text, f"--host-policy={policy},SETTING"
            )
        if group.HasField("rate_limiter"):
            text = "rate_limiter does nothing on a server without --rate-limit"
            yield Violation(
                Rule.RATE_LIMIT, f"{path}.rate_limiter", text, "--rate-limit=execution_count"
            )


_IDLE: tuple[Callable[[ModelConfig], Iterator[Violation]], ...] = (
    _instance_count,
    _policies_without_levels,
    _timeout_override,
    _sequence_delay,
    _needs_flags,
)
