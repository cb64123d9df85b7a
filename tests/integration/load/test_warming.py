"""A batch size that first comes up under load must not take its first time out of the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf.json_format import MessageToJson

if TYPE_CHECKING:
    from builders.load_bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_every_batch_size_was_executed_before_anything_is_measured(bench: Bench) -> None:
    config = bench.control.running_config("plain")
    config.max_batch_size = 8
    config.dynamic_batching.SetInParent()
    bench.control.load("plain", MessageToJson(config), 60.0)
    before = bench.control.statistics("plain")
    bench.generator("plain").await_first_answers(30.0, lambda _: None)
    after = bench.control.statistics("plain")
    assert set(after.batches) >= {*range(1, 9)}
    assert after.fail_count == before.fail_count
