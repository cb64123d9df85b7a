"""A config that changes what a model answers is never written, however fast it is."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.integration]

#: Fast in batches, and wrong there: each answer depends on who else is in the batch.
_MODEL = """
import time

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.01)
        xs = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        mean = np.mean(np.concatenate(xs), axis=0) if len(xs) > 1 else 0.0
        return [pb.InferenceResponse([pb.Tensor("y", (x - mean).astype("f4"))]) for x in xs]
"""

_CONFIG = """
name: "mixed"
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""

_SPEC = """\
model: mixed
repository: repository
workload:
  arrivals: {kind: closed, concurrency: [8], restarts: 1}
  window: 1s
  warmup: 200ms
slo: [p90_latency <= 1s]
space:
  dynamic_batching: {choice: [off, on]}
budget: {trials: 2}
confirm: {rounds: 3, finalists: 1, soak: 3s}
"""


def test_a_winner_that_changes_answers_is_refused(workplace) -> None:  # type: ignore[no-untyped-def]
    model: Path = workplace.directory / "repository" / "mixed"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(_MODEL)
    config = model / "config.pbtxt"
    config.write_text(_CONFIG)
    spec = workplace.directory / "mixed.yaml"
    spec.write_text(_SPEC)
    done = workplace.tune("run", str(spec))
    result = workplace.result()
    assert done.returncode == 11, (done.stderr, result)
    assert result["status"] == "unconfirmed"
    assert any("It changes answers: input" in reason for reason in result["reasons"])
    assert any("asked with others: output y" in reason for reason in result["reasons"])
    assert config.read_text() == _CONFIG
    assert result["winner"] is result["written"] is None
