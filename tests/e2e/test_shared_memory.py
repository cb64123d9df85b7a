"""A run whose images lie in shared memory, on a real server, ends with a config and leaves none."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.e2e_workplace import Workplace

from tuner.server.shared_memory import SHM

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

_MODEL = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        images = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        time.sleep(0.1)
        return [pb.InferenceResponse([pb.Tensor("y", i[:, 0, 0, :8].copy())]) for i in images]
"""

_CONFIG = """
name: "images"
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 8 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""

#: 10 requests a second at the most, one by one.
_SPEC = """\
model: images
repository: repository
workload:
  arrivals: {kind: poisson, rate: [5, 13]}
  shared_memory: system
  window: 4s
slo: [p90_latency <= 1500ms]
space:
  dynamic_batching: {choice: [off, on]}
budget: {trials: 2}
confirm: {finalists: 1, rounds: 3, soak: 4s, time: 5m}
"""


def regions() -> set[str]:
    return {path.name for path in Path(SHM).glob("tune-*-requests")}


def test_the_written_config_and_the_report_are_of_images_in_shared_memory(
    workplace: Workplace,
) -> None:
    config = workplace.place("images", _MODEL, _CONFIG) / "config.pbtxt"
    before = regions()
    done = workplace.improve(_SPEC)
    assert "inputs are in shared memory: up to 47.66 MiB of /dev/shm" in done.stderr
    assert "dynamic_batching" in config.read_text()
    assert "shared_memory: system" in (workplace.run / "report.html").read_text()
    assert regions() <= before
