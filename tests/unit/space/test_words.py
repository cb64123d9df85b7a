from __future__ import annotations

import pytest

from tuner.space.words import field_text


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("instance_group.count", 2, "instances 2"),
        ("instance_group.count", 0, "instances left to Triton"),
        ("dynamic_batching", None, "dynamic batching off"),
        ("dynamic_batching.max_queue_delay_microseconds", 0, "delay 0 us"),
        ("dynamic_batching.max_queue_delay_microseconds", 3000, "delay 3 ms"),
        ("dynamic_batching.preferred_batch_size", (4, 8), "preferred [4, 8]"),
    ],
)
def test_fields_in_a_few_words(path: str, value: object, text: str) -> None:
    assert field_text(path, value) == text  # type: ignore[arg-type]
