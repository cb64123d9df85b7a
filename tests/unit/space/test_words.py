from __future__ import annotations

import pytest

from tuner.space.candidate import Candidate, FieldValue
from tuner.space.parameters import Knob
from tuner.space.words import changes_text, field_text
from tuner.spec.paths import INSTANCES


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
def test_fields_in_a_few_words(path: str, value: FieldValue, text: str) -> None:
    assert field_text(Candidate({Knob("m", path): value}), Knob("m", path)) == text


def test_of_several_models_a_change_is_told_with_the_model_it_is_of() -> None:
    current = Candidate.of_models({"tiny-bert": {INSTANCES: 1}, "head": {INSTANCES: 1}})
    changed = Candidate.of_models({"tiny-bert": {INSTANCES: 2}, "head": {INSTANCES: 1}}, 1 << 26)
    assert changes_text(changed, current) == "tiny-bert: instances 2, cache 64 MiB"
