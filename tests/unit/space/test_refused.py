"""Models that no search of one latency is for, whoever wrote the spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import SpecError
from tuner.modelconfig.message import parse
from tuner.space.judge import refuse_unmeasurable
from tuner.steps.job import Request, prepare

REFUSED = {
    "takes sequences": "sequence_batching { }",
    "decoupled": "model_transaction_policy { decoupled: true }",
    "language model": 'backend: "vllm"',
}


@pytest.mark.parametrize("what", REFUSED)
def test_they_are_refused_with_a_next_step(what: str) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        refuse_unmeasurable("m", parse(f'name: "m" max_batch_size: 8 {REFUSED[what]}'))
    assert caught.value.hint


@pytest.mark.parametrize("what", REFUSED)
def test_a_spec_written_by_hand_is_refused_before_anything_starts(
    tmp_path: Path, what: str
) -> None:
    model = tmp_path / "repository" / "m"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(f'name: "m" max_batch_size: 8 {REFUSED[what]}')
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "model: m\nrepository: repository\nslo: [p99_latency <= 40ms]\n"
        "space: {instance_group.count: {int: [1, 4]}}\n"
    )
    with pytest.raises(SpecError, match=what):
        prepare(Request(spec=spec))


def test_other_models_are_not() -> None:
    refuse_unmeasurable("m", parse('name: "m" max_batch_size: 8 dynamic_batching { }'))
