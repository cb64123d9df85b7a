"""`tune run` over knobs of ONNX Runtime, by the stand-in for NVIDIA's backend.

What is best is so by construction: the graph multiplies constants, which ONNX Runtime does at each
request where its optimizations are off, and once where they are on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.e2e_workplace import Workplace
from builders.onnx_models import ARGUMENT, constant, place

from tuner.modelconfig.message import parse

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

ACCELERATOR = "optimization.execution_accelerators.cpu_execution_accelerator[name=openvino]"
LEVEL = "optimization.graph.level"
CONFIG = """\
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 8 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 8 ] } ]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
instance_group [ { count: 1 } ]
optimization { graph { level: 2 } }  # left from looking for a fault
"""
SPEC = f"""\
model: scorer
repository: repository
server: {{args: ["{ARGUMENT}"]}}
workload:
  arrivals: {{kind: closed, concurrency: [2], restarts: 1}}
  window: 1s
  warmup: 200ms
slo: [p90_latency <= 2s]
space:
  {LEVEL}: {{choice: [2, 1]}}
  {ACCELERATOR}: {{choice: [off, on]}}
budget: {{trials: 4}}
confirm: {{finalists: 1, soak: 3s}}
"""


def test_knobs_of_onnx_runtime_are_searched_written_and_taken_back(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    config = place(tmp_path / "repository", "scorer", constant(), CONFIG) / "config.pbtxt"
    (tmp_path / "spec.yaml").write_text(SPEC)
    done = workplace.tune("run", "spec.yaml")
    assert done.returncode == 0, done.stderr
    result = workplace.result()
    assert result["status"] == "improved", result["reasons"]
    assert "failed" not in {trial["state"] for trial in workplace.trials()}
    tried = [trial["candidate"]["models"]["scorer"] for trial in workplace.trials()]
    assert {fields[LEVEL] for fields in tried} == {1, 2}
    assert {fields[ACCELERATOR] for fields in tried} == {None, True}
    written = config.read_text()
    assert parse(written).optimization.graph.level == 1
    assert "# left from looking for a fault" in written
    back = workplace.tune("rollback", "scorer", "--repository", "repository")
    assert back.returncode == 0, back.stderr
    assert config.read_text() == CONFIG
    assert workplace.children() == []
