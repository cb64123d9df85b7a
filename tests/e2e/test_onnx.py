"""`tune run` on ONNX models, with a stand-in for NVIDIA's backend over the real ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.e2e_workplace import Workplace
from builders.onnx_models import ARGUMENT, encoder, perceptron, place

from tuner.modelconfig.message import parse

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

#: Of a small perceptron the server's own work is most, and a batch does that once for all.
SPEC = """\
model: {model}
repository: repository
server: {{args: ["{argument}"]}}
workload:
  arrivals: {{kind: closed, concurrency: [8], restarts: 1}}
  window: 1s
  warmup: 200ms
{inputs}slo: [p90_latency <= 500ms]
objective: maximize goodput
{space}budget: {{trials: 4}}
confirm: {{finalists: 1, rounds: 3, soak: 3s}}
"""
SEARCH = """\
{indent}space:
{indent}  dynamic_batching: {{choice: [off, on]}}
{indent}  parameters.intra_op_thread_count: {{choice: ["1", "2"]}}
"""
CONFIG = """\
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 8 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 1 } ]   # one session
"""
#: Token ids of letters, a text in each request.
WORDS = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            text = pb.get_input_tensor_by_name(request, "text").as_numpy()
            ids = (np.abs(text) * 100).astype(np.int64) % 100
            answers.append(pb.InferenceResponse([pb.Tensor("ids", ids)]))
        return answers
"""
WORDS_CONFIG = """\
backend: "python"
max_batch_size: 8
input [ { name: "text" data_type: TYPE_FP32 dims: [ 6 ] } ]
output [ { name: "ids" data_type: TYPE_INT64 dims: [ 6 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
EMBED_CONFIG = """\
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "ids" data_type: TYPE_INT64 dims: [ -1 ] } ]
output [ { name: "pooled" data_type: TYPE_FP32 dims: [ 32 ] } ]
instance_group [ { count: 1 } ]
"""
SEARCHER_CONFIG = """\
platform: "ensemble"
max_batch_size: 8
input [ { name: "text" data_type: TYPE_FP32 dims: [ 6 ] } ]
output [ { name: "pooled" data_type: TYPE_FP32 dims: [ 32 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "words"
      model_version: -1
      input_map { key: "text" value: "text" }
      output_map { key: "ids" value: "ids" }
    },
    {
      model_name: "embed"
      model_version: -1
      input_map { key: "ids" value: "ids" }
      output_map { key: "pooled" value: "pooled" }
    }
  ]
}
"""


def spec(workplace: Workplace, model: str, *, step: str = "", inputs: str = "") -> None:
    space = SEARCH.format(indent="    " if step else "")
    text = SPEC.format(
        model=model,
        argument=ARGUMENT,
        inputs=inputs,
        space=f"models:\n  {step}:\n{space}" if step else space,
    )
    (workplace.directory / "spec.yaml").write_text(text)


def tuned(workplace: Workplace) -> str:
    """The status of a run in which every config was loaded and answered."""
    done = workplace.tune("run", "spec.yaml")
    assert done.returncode == 0, done.stderr
    assert workplace.trials()
    assert "failed" not in {trial["state"] for trial in workplace.trials()}
    assert workplace.children() == []
    return str(workplace.result()["status"])


def test_a_model_of_onnx_runtime_is_drafted_tuned_and_written(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    model = place(tmp_path / "repository", "scorer", perceptron(), CONFIG)
    draft = workplace.tune("init", "scorer", "--repository", "repository", "--output", "-")
    assert "parameters.intra_op_thread_count" in draft.stdout
    assert "mode: docker" in draft.stdout  # the wheel's server has no such backend

    spec(workplace, "scorer")
    assert tuned(workplace) == "improved"
    written = (model / "config.pbtxt").read_text()
    assert "# one session" in written
    assert parse(written).HasField("dynamic_batching")
    back = workplace.tune("rollback", "scorer", "--repository", "repository")
    assert back.returncode == 0, back.stderr
    assert (model / "config.pbtxt").read_text() == CONFIG


def test_a_step_of_onnx_runtime_is_tuned_behind_one_in_python(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    repository = tmp_path / "repository"
    words = place(repository, "words", None, WORDS_CONFIG)
    (words / "1" / "model.py").write_text(WORDS)
    embed = place(repository, "embed", encoder(), EMBED_CONFIG)
    searcher = place(repository, "searcher", None, SEARCHER_CONFIG)
    spec(workplace, "searcher", step="embed")
    status = tuned(workplace)
    assert status in ("improved", "kept")
    changed = (embed / "config.pbtxt").read_text() != EMBED_CONFIG
    assert changed == (status == "improved")
    assert (words / "config.pbtxt").read_text() == WORDS_CONFIG
    assert (searcher / "config.pbtxt").read_text() == SEARCHER_CONFIG
    served = {name for t in workplace.trials() for name in t["points"][-1]["measurement"]["models"]}
    assert served == {"words", "embed", "searcher"}
