"""A Python model that fails where a test has it fail, and a spec for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders.model_files import write_model

CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 4 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
MODEL = """\
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.begun = False
        %(initialize)s

    def execute(self, requests):
        %(execute)s
        inputs = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in inputs]
"""
SPEC = """\
model: m
repository: repository
server: {load_timeout: %(timeout)s}
workload:
  arrivals: {kind: closed, concurrency: [4], restarts: 1}
  window: 1s
  warmup: 200ms
slo: [p90_latency <= 200ms, error_rate <= 0%%]
space:
  instance_group.count: {int: [1, 2]}
  dynamic_batching: {choice: [off, on]}
budget: {trials: 4}
confirm: {finalists: 1, soak: 3s}
"""


def place(
    workplace: Any, initialize: str = "pass", execute: str = "pass", timeout: str = "120s"
) -> Path:
    directory = workplace.directory / "repository" / "m"
    write_model(directory, CONFIG, MODEL % {"initialize": initialize, "execute": execute})
    spec: Path = workplace.directory / "spec.yaml"
    spec.write_text(SPEC % {"timeout": timeout})
    return spec
