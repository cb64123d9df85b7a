"""Settings of a model config that load but do nothing: a search over them measures noise.

Each function says how tritonserver 2.51 (24.10) answered when it was tried ("loads"), or "source"
where it was only read.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.modelconfig.backends import Mistake, is_completed
from tuner.modelconfig.rules import Check, Rule, Violation, found_by, queue_policies
from tuner.modelconfig.schema import ModelConfig

_DEFAULT_HOST_POLICIES = ("cpu", "model", "gpu_")


def without_effect(config: ModelConfig, *, completes: bool = False) -> list[Violation]:
    """Settings that load and then do nothing, alone or on a server without further arguments.

    Args:
        completes: As in `violations`; max_batch_size may be filled in too.
    """
    return found_by(_IDLE if completes else _OF_A_WHOLE + _IDLE, config)


def _batcher_without_batches(config: ModelConfig) -> Iterator[Mistake]:
    """dynamic_batching with max_batch_size 0: loads, and every batch is one request."""
    batches = config.max_batch_size or is_completed(config)
    if config.HasField("dynamic_batching") and not batches:
        text = "dynamic_batching forms no batches while max_batch_size is 0"
        yield "dynamic_batching", text, "set max_batch_size to 1 or more"


def _instance_count(config: ModelConfig) -> Iterator[Mistake]:
    """Below 0: loads, with Triton's default count."""
    for index, group in enumerate(config.instance_group):
        if group.count < 0:
            text = f"instance count {group.count} is read as unset"
            yield f"instance_group[{index}].count", text, ""


def _policies_without_levels(config: ModelConfig) -> Iterator[Mistake]:
    """priority_queue_policy without priority_levels: loads; the policies are unused (source)."""
    batching = config.dynamic_batching
    if batching.priority_queue_policy and not batching.priority_levels:
        text = "priority_queue_policy does nothing without priority_levels"
        hint = "set priority_levels and default_priority_level"
        yield "dynamic_batching.priority_queue_policy", text, hint


def _timeout_override(config: ModelConfig) -> Iterator[Mistake]:
    """allow_timeout_override without a default timeout (PolicyQueue::Enqueue, source)."""
    for path, policy in queue_policies(config):
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            text = (
                "allow_timeout_override does nothing without default_timeout_microseconds: "
                "a request may only shorten the default"
            )
            yield f"{path}.allow_timeout_override", text, "set default_timeout_microseconds"


def _sequence_delay(config: ModelConfig) -> Iterator[Mistake]:
    """Direct strategy: the delay counts only with minimum_slot_utilization (model_config.proto)."""
    direct = config.sequence_batching.direct
    if direct.max_queue_delay_microseconds and not direct.minimum_slot_utilization:
        path = "sequence_batching.direct.max_queue_delay_microseconds"
        yield path, "max_queue_delay_microseconds does nothing without minimum_slot_utilization", ""


def _cache(config: ModelConfig) -> Iterator[Mistake]:
    """Needs the server's consent too: loads."""
    if config.response_cache.enable:
        text = "response_cache does nothing on a server started without --cache-config"
        hint = "start tritonserver with --cache-config=local,size=BYTES"
        yield "response_cache.enable", text, hint


def _host_policies(config: ModelConfig) -> Iterator[Mistake]:
    """Need the server's consent too: loads."""
    for index, group in enumerate(config.instance_group):
        policy = group.host_policy
        if policy and not policy.startswith(_DEFAULT_HOST_POLICIES):
            text = f"host policy {policy!r} does nothing on a server that does not define it"
            yield f"instance_group[{index}].host_policy", text, f"--host-policy={policy},SETTING"


def _rate_limits(config: ModelConfig) -> Iterator[Mistake]:
    """Need the server's consent too: loads."""
    for index, group in enumerate(config.instance_group):
        if group.HasField("rate_limiter"):
            text = "rate_limiter does nothing on a server without --rate-limit"
            yield f"instance_group[{index}].rate_limiter", text, "--rate-limit=execution_count"


#: For a config that nothing completes.
_OF_A_WHOLE = ((Rule.BATCHER_WITHOUT_BATCHES, _batcher_without_batches),)
_IDLE: tuple[tuple[Rule, Check], ...] = (
    (Rule.INSTANCE_COUNT, _instance_count),
    (Rule.PRIORITY_LEVEL, _policies_without_levels),
    (Rule.TIMEOUT_OVERRIDE, _timeout_override),
    (Rule.SEQUENCE_DELAY, _sequence_delay),
    (Rule.CACHE_FLAG, _cache),
    (Rule.HOST_POLICY, _host_policies),
    (Rule.RATE_LIMIT, _rate_limits),
)
