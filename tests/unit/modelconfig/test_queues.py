"""What the queue policies of a config do to requests."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2

from tuner.modelconfig.queues import may_reject


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, False),
        ({"max_queue_size": 8}, True),
        ({"default_timeout_microseconds": 1000}, True),  # REJECT is the default action
        ({"default_timeout_microseconds": 1000, "timeout_action": 1}, False),
        ({"default_timeout_microseconds": 1000, "timeout_action": 1, "max_queue_size": 8}, True),
        ({"allow_timeout_override": True}, False),  # requests bring no timeouts
    ],
    ids=str,
)
def test_configs_that_may_refuse_requests(policy: dict[str, Any], expected: bool) -> None:
    queue = model_config_pb2.ModelQueuePolicy(**policy)
    default, levels = model_config_pb2.ModelConfig(), model_config_pb2.ModelConfig()
    default.dynamic_batching.default_queue_policy.CopyFrom(queue)
    levels.dynamic_batching.priority_queue_policy[2].CopyFrom(queue)
    assert may_reject(default) is expected
    assert may_reject(levels) is expected


def test_a_config_without_a_batcher_refuses_nothing() -> None:
    assert not may_reject(model_config_pb2.ModelConfig())
