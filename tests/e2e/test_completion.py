"""A model without config.pbtxt, completed by its own code: tuned, written, loaded, taken back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders.e2e_workplace import Workplace

from tuner.server.binaries import tritonserver
from tuner.server.control import Control
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.long, pytest.mark.measuring]

_MODEL = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [4]})
        config.set_max_batch_size(8)
        return config

    def execute(self, requests):
        time.sleep(0.01)
        xs = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", x)]) for x in xs]
"""


def test_a_model_without_a_config_is_tuned_and_runs_what_was_written(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    model = workplace.place("bare", _MODEL)

    done = workplace.tune("run", "spec.yaml")
    assert done.returncode == 0, done.stderr
    assert "the server completes the config: max_batch_size 8, input, output" in done.stderr
    assert "failed" not in {t["state"] for t in workplace.trials()}
    assert (model / "config.pbtxt").read_text().split() == ["dynamic_batching", "{", "}"]

    with (
        tritonserver(None, os.environ) as installation,
        LocalLauncher(installation, tmp_path / "repository").launch((), tmp_path / "log") as server,
        Control(server.endpoints) as control,
    ):
        control.load("bare", None, 30)
        running = control.running_config("bare")
    assert running.HasField("dynamic_batching")
    assert running.max_batch_size == 8

    assert workplace.tune("rollback", "bare", "--repository", "repository").returncode == 0
    assert not (model / "config.pbtxt").exists()
