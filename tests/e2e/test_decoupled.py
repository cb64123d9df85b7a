"""A run of a decoupled model on a real server ends with a config and figures of its responses."""

from __future__ import annotations

import csv

import pytest
from builders.decoupled_models import DECOUPLED
from builders.e2e_workplace import Workplace

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.measuring]

_MODEL = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            for part in (x, 2 * x):
                time.sleep(0.05)
                sender.send(pb.InferenceResponse([pb.Tensor("y", part)]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_CONFIG = f"""
name: "speech"
backend: "python"
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
{DECOUPLED}
"""

#: One instance answers 10 requests a second at the most, and four 40.
_SPEC = """\
model: speech
repository: repository
workload:
  arrivals: {kind: poisson, rate: [5, 13]}
  window: 4s
slo: [p90_first_response <= 1s, p90_last_response <= 1200ms, error_rate <= 0%]
space:
  instance_group.count: {choice: [1, 4]}
budget: {trials: 2}
confirm: {finalists: 1, rounds: 3, soak: 4s, time: 5m}
"""


def test_the_written_config_and_the_report_are_of_first_and_last_responses(
    workplace: Workplace,
) -> None:
    config = workplace.place("speech", _MODEL, _CONFIG) / "config.pbtxt"
    done = workplace.improve(_SPEC)
    assert "tune's own client: perf_analyzer does not measure first responses" in done.stderr
    result = workplace.result()
    assert "count: 4" in config.read_text()
    metrics = {slo["metric"] for slo in result["winner"]["slo"]}
    assert metrics == {"p90_first_response", "p90_last_response", "error_rate"}
    for round_ in result["winner"]["rounds"]:
        responses = round_["measurement"]["responses"]
        assert (responses["fewest_responses"], responses["most_responses"]) == (2, 2)
        between_us = responses["p50_last_response_us"] - responses["p50_first_response_us"]
        assert between_us > 45e3
    for name in ("report.html", "report.md"):
        assert "responses per request" in (workplace.run / name).read_text()
    with (workplace.run / "trials.csv").open() as file:
        assert all(float(row["p90_first_response_us"]) > 50e3 for row in csv.DictReader(file))
