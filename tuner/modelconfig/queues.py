"""What the queue policies of a config do to requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.modelconfig.schema import ModelConfig

#: Of what a full queue of an ensemble's step refuses. Tritonserver 2.51 answered it when tried.
HANGS = "may never be answered by servers before 26.03 (core#466)"

#: Longest that a request waits beside an idle instance where a queue policy is set, microseconds:
#: the batcher then prepares no batch ahead, and may miss that an instance became free until its
#: next look or the next request (core's dynamic_batch_scheduler.cc, 24.10 to June 2026; seen with
#: tritonserver 2.51).
IDLE_WAIT_US = 500_000


def policy_of_queue(config: ModelConfig) -> str:
    """Path of the first setting by which requests may wait beside an idle instance; or empty."""
    batching = config.dynamic_batching
    if batching.priority_levels:
        return "dynamic_batching.priority_levels"
    for path, policy in queue_policies(config):
        if policy.default_timeout_microseconds or policy.allow_timeout_override:
            return path
        if policy.max_queue_size:
            return path
    return ""


def timeouts_within_delay(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Queue policies by which a lone request is rejected, and how.

    It waits for the full delay, and has timed out by then. Triton loads such a config.
    """
    delay = config.dynamic_batching.max_queue_delay_microseconds
    for path, policy in queue_policies(config):
        timeout = policy.default_timeout_microseconds
        if 0 < timeout <= delay and not is_delay(policy):
            text = f"requests are rejected after {timeout} us but wait up to {delay} us for a batch"
            yield path, text


def queue_policies(config: ModelConfig) -> Iterator[tuple[str, Any]]:
    """Path and `ModelQueuePolicy` of each queue policy of the dynamic batcher."""
    batching = config.dynamic_batching
    if batching.HasField("default_queue_policy"):
        yield "dynamic_batching.default_queue_policy", batching.default_queue_policy
    for level in sorted(batching.priority_queue_policy):
        policy = batching.priority_queue_policy[level]
        yield f"dynamic_batching.priority_queue_policy[{level}]", policy


def is_delay(policy: Any) -> bool:
    """Requests that time out are kept, behind all others, rather than rejected."""
    return bool(policy.TimeoutAction.Name(policy.timeout_action) == "DELAY")


def may_be_full(config: Any) -> bool:
    """Whether only so many requests may wait."""
    return any(policy.max_queue_size > 0 for _, policy in queue_policies(config))


def may_reject(config: Any) -> bool:
    """Whether a queue policy of a ``ModelConfig`` can refuse requests."""
    return may_be_full(config) or any(
        policy.default_timeout_microseconds > 0 and not is_delay(policy)
        for _, policy in queue_policies(config)
    )
