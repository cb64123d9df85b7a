"""The gate: what `tune` is for, on a real server, with answers that are known by construction.

The model sleeps and computes nothing, few requests come, and limits are wide, so that a busy
machine does not matter: unlike tests that measure, these decide whether a change is accepted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.e2e_workplace import Workplace
from builders.model_files import write_model

#: A measurement that others disturb is made twice.
pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 4 ] } ]
parameters { key: "sleep_ms" value { string_value: "100" } }
instance_group [ { count: %d, kind: KIND_CPU } ]  # sleeping beside each other
"""
MODEL = """\
import json
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.sleep_s = float(parameters["sleep_ms"]["string_value"]) / 1e3

    def execute(self, requests):
        time.sleep(self.sleep_s)
        inputs = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in inputs]
"""
SPEC = """\
model: sleeper
repository: repository
workload:
  arrivals: %(arrivals)s
  window: %(window)s
  warmup: 500ms
slo: [p90_latency <= %(p90)s]
space: %(space)s
budget: {trials: 4}
confirm: {finalists: 1, soak: 3s}
check: {warn: 15%%, fail: 25%%, rounds: 4}
"""


def place(workplace: Workplace, instances: int, arrivals: str, **changes: str) -> Path:
    """A sleeping model and its spec; returns its config."""
    directory = workplace.directory / "repository" / "sleeper"
    write_model(directory, CONFIG % instances, MODEL)
    space = "{instance_group.count: {choice: [1, 5]}}"
    spec = {"p90": "500ms", "window": "2s", "space": space, "arrivals": arrivals, **changes}
    (workplace.directory / "spec.yaml").write_text(SPEC % spec)
    return directory / "config.pbtxt"


def test_five_instances_for_one_are_found_proved_written_and_taken_back(
    workplace: Workplace,
) -> None:
    config = place(workplace, 1, "{kind: poisson}")
    before = config.read_bytes()
    done = workplace.tune("run", "spec.yaml")
    assert done.returncode == 0, done.stderr
    result = workplace.result()
    assert result["status"] == "improved", result["reasons"]
    assert 3.0 < result["gain"]["ratio"]["low"] < 8.0
    assert result["written"] is not None
    assert config.read_bytes() == before.replace(b"count: 1", b"count: 5")
    back = workplace.tune("rollback", "sleeper", "--repository", "repository")
    assert back.returncode == 0, back.stderr
    assert config.read_bytes() == before
    assert workplace.children() == []


def test_a_config_that_is_right_already_is_kept(workplace: Workplace) -> None:
    """Fewer instances are worse, and what only a GPU heeds makes no difference."""
    threshold = "optimization.gather_kernel_buffer_threshold: {choice: [8, 16]}"
    space = f"{{instance_group.count: {{choice: [1, 5]}}, {threshold}}}"
    config = place(workplace, 5, "{kind: poisson, rate: [20]}", space=space)
    before = config.read_bytes()
    done = workplace.tune("run", "spec.yaml")
    result = workplace.result()
    assert (done.returncode, result["status"]) == (0, "kept"), result["reasons"]
    assert result["gain"]["ratio"]["high"] < 1.1
    assert result["written"] is None
    assert config.read_bytes() == before
    assert workplace.children() == []


def checked(workplace: Workplace, *options: str) -> tuple[int, dict[str, Any]]:
    done = workplace.tune("check", "spec.yaml", *options, "--format", "json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_check_passes_an_unchanged_config_and_finds_half_of_it_lost(
    workplace: Workplace,
) -> None:
    closed = "{kind: closed, concurrency: [8], restarts: 1}"
    config = place(workplace, 4, closed, p90="2s", window="6s")
    code, accepted = checked(workplace, "--update-baseline")
    assert (code, accepted["status"]) == (0, "accepted"), accepted["reasons"]
    code, same = checked(workplace)
    assert (code, same["status"]) == (0, "fine"), same["reasons"]
    config.write_text(config.read_text().replace('"100"', '"200"'))
    code, lost = checked(workplace)
    assert (code, lost["status"]) == (12, "regression"), lost["reasons"]
    assert lost["ratio"]["high"] < 0.75
    assert workplace.children() == []
