"""The gate: what `tune` is for, on a real server, with answers that are known by construction.

The model sleeps and computes nothing, few requests come, and limits are wide, so that a busy
machine does not matter: unlike tests that measure, these decide whether a change is accepted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.candidates import the_one
from builders.e2e_workplace import Workplace
from builders.model_files import write_model

from tuner.modelconfig.message import parse
from tuner.record.checks import CheckFacts
from tuner.record.result_schema import check as schema_mistakes

#: A measurement that others disturb is made twice.
pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "x", data_type: TYPE_FP32, dims: [ 4 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 4 ] } ]
parameters { key: "sleep_ms" value { string_value: "100" } }  # a batch, however large
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
check: {warn: 15%%, fail: 25%%, rounds: 3}
"""
BATCHES = "dynamic_batching { }\n"


def place(workplace: Workplace, more: str, arrivals: str, **changes: str) -> Path:
    """A sleeping model with ``more`` in its config, which is returned, and its spec."""
    directory = workplace.directory / "repository" / "sleeper"
    write_model(directory, CONFIG + more, MODEL)
    space = "{dynamic_batching: {choice: [off, on]}}"
    spec = {"p90": "500ms", "window": "2s", "space": space, "arrivals": arrivals, **changes}
    (workplace.directory / "spec.yaml").write_text(SPEC % spec)
    return directory / "config.pbtxt"


def test_gain_from_batches_of_five_is_proved_written_and_rolled_back(
    workplace: Workplace,
) -> None:
    """One by one 10/s, in full batches 80/s: of the 50/s that are the most asked, five times."""
    config = place(workplace, "# one by one\n", "{kind: poisson, max_rate: 50}")
    before = config.read_bytes()
    done = workplace.tune("run", "spec.yaml")
    assert done.returncode == 0, done.stderr
    result = workplace.result()
    assert result["status"] == "improved", result["reasons"]
    assert 3.0 < result["gain"]["ratio"]["low"] < 8.0
    assert result["written"] is not None
    assert schema_mistakes(result) == []
    assert "# one by one" in config.read_text()
    assert parse(config.read_text()).HasField("dynamic_batching")
    (best,) = (workplace.run / "best").glob("*/config.pbtxt")
    assert best.read_bytes() == config.read_bytes()
    assert the_one(result["models"])["config_after"] == config.read_text()
    for name in ("report.html", "report.md", "junit.xml", "trials.csv", "study.db"):
        assert (workplace.run / name).stat().st_size > 0, name
    assert result["winner"]["soak"]["tried"][0]["measurement"]["duration_s"] >= 3.0
    assert "soak: " in done.stderr
    assert "Better: " in done.stdout
    assert "Better" not in done.stderr.splitlines()[0]
    again = workplace.tune("apply", str(workplace.run))
    assert again.returncode == 0, again.stderr
    assert "already there" in again.stdout
    back = workplace.tune("rollback", "sleeper", "--repository", "repository")
    assert back.returncode == 0, back.stderr
    assert config.read_bytes() == before
    assert workplace.children() == []


def test_a_config_that_is_right_already_is_kept(workplace: Workplace) -> None:
    """One by one it would answer half; what only a GPU heeds makes no difference."""
    threshold = "optimization.gather_kernel_buffer_threshold: {choice: [8, 16]}"
    space = f"{{dynamic_batching: {{choice: [off, on]}}, {threshold}}}"
    # 100 requests a round: of 50, a batch under way at the end looks like a backlog
    config = place(workplace, BATCHES, "{kind: poisson, rate: [20]}", space=space, window="4s")
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
    facts = json.loads(done.stdout)
    CheckFacts.model_validate(facts)
    assert facts["exit_code"] == done.returncode
    directory = workplace.directory / "results" / facts["run_id"]
    assert json.loads((directory / "check.json").read_text()) == facts
    for name in ("report.md", "junit.xml", "manifest.json", "confirmation.jsonl"):
        assert (directory / name).stat().st_size > 0, name
    return done.returncode, facts


def test_a_check_passes_an_unchanged_config_and_finds_half_of_it_lost(
    workplace: Workplace,
) -> None:
    closed = "{kind: closed, concurrency: [8], restarts: 1}"
    four = "instance_group [ { count: 4, kind: KIND_CPU } ]  # sleeping beside each other\n"
    config = place(workplace, four, closed, p90="2s", window="4s")
    code, accepted = checked(workplace, "--update-baseline")
    assert (code, accepted["status"]) == (0, "accepted"), accepted["reasons"]
    code, same = checked(workplace)
    assert (code, same["status"]) == (0, "fine"), same["reasons"]
    config.write_text(config.read_text().replace('"100"', '"200"'))
    code, lost = checked(workplace)
    assert (code, lost["status"]) == (12, "regression"), lost["reasons"]
    assert lost["ratio"]["high"] < 0.75
    assert [row["status"] for row in lost["history"]] == ["accepted", "fine", "regression"]
    assert '"200"' in config.read_text()  # a check writes nothing
    assert workplace.children() == []
