"""A config that changes what a model answers is never written, however fast it is."""

from __future__ import annotations

import pytest
from builders.e2e_workplace import Workplace

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

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


def test_a_winner_that_changes_answers_is_refused(workplace: Workplace) -> None:
    config = workplace.place("mixed", _MODEL, _CONFIG) / "config.pbtxt"
    done = workplace.tune("run", "spec.yaml")
    result = workplace.result()
    assert done.returncode == 11, (done.stderr, result)
    assert result["status"] == "not known"
    assert any("It changes answers: input" in reason for reason in result["reasons"])
    assert any("with others: output y" in reason for reason in result["reasons"])
    assert config.read_text() == _CONFIG
    assert result["winner"] is result["written"] is None
