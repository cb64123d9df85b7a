"""A run under sequences on a real server ends with a config that serves twice as many at once."""

from __future__ import annotations

import pytest
from builders.e2e_workplace import Workplace
from builders.sequence_model import sequence_code, sequence_config

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

#: Four slots of the direct strategy: four sequences at once, whatever the model could answer.
_CONFIG = sequence_config("speech").replace("max_batch_size: 8", "max_batch_size: 4")
_SPEC = """\
model: speech
repository: repository
workload:
  arrivals: {kind: sequences, length: 20, interval: 500ms, count_output: count, rate: [8, 20]}
  window: 4s
slo: [p90_latency <= 1s, error_rate <= 0%]
space:
  sequence_batching.oldest: {choice: [off, on]}
  sequence_batching.oldest.max_candidate_sequences: {choice: [64]}
budget: {trials: 2}
confirm: {finalists: 1, rounds: 3, soak: 4s, time: 5m}
"""


def test_the_written_config_serves_twice_the_sequences_at_once(workplace: Workplace) -> None:
    config = workplace.place("speech", sequence_code(0.1), _CONFIG) / "config.pbtxt"
    workplace.improve(_SPEC)
    result = workplace.result()
    assert "oldest" in config.read_text()
    assert result["winner"]["sequences_at_once"] == 10
    assert result["baseline"].get("sequences_at_once", 0) <= 5
    assert "Sequences at once" in (workplace.run / "report.md").read_text()
