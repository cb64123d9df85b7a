"""Errors that a Python model answers, which the server counts as successes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders.load_bench import Bench, serving_all
from builders.model_files import write_model

from tuner.errors import ModelFailsError
from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT
from tuner.measurement.measurement import Arrivals, FailureReason, LoadPoint
from tuner.measurement.window import Window
from tuner.server.binaries import Installation

pytestmark = [pytest.mark.integration, pytest.mark.long]

_MODEL = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.count = 0

    def answer(self, request):
        self.count += 1
        if FAILS:
            return pb.InferenceResponse(error=pb.TritonError("out of paper"STATUS))
        return pb.InferenceResponse(
            [pb.Tensor("y", pb.get_input_tensor_by_name(request, "x").as_numpy())]
        )

    def execute(self, requests):
        time.sleep(0.004)
        return [self.answer(request) for request in requests]
"""
_CONFIG = """
name: "%s"
backend: "python"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 8 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 8 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
#: By name, when and with which status: as it is, and as a lost and a given-up call have.
MODELS = {
    "often": ("self.count % 50 == 0", ""),
    "once": ("self.count == 300", ""),
    "unavailable": ("self.count % 50 == 0", ", pb.TritonError.UNAVAILABLE"),
    "cancelled": ("self.count % 50 == 0", ", pb.TritonError.CANCELLED"),
}
LOAD = LoadPoint(Arrivals.POISSON, 100.0)
WINDOW = Window(duration_s=3.0, warmup_s=0.5, tail_s=0.5, deadline_s=30.0)
SENT = 400


@pytest.fixture(scope="module")
def erring(program: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("erring")
    for name, (fails, status) in MODELS.items():
        code = _MODEL.replace("FAILS", fails).replace("STATUS", status)
        write_model(directory / "repository" / name, _CONFIG % name, code)
    with serving_all(program, directory, []) as bench:
        yield bench


@pytest.mark.parametrize("model", ["often", "once"])
def test_perf_analyzer_is_not_blamed_for_errors_of_the_model(erring: Bench, model: str) -> None:
    erring.control.load(model, None, 60.0)
    generator = erring.generator(model, PERF_ANALYZER)
    message = r"^the model answered at least \d of \d+ requests with an error: out of paper$"
    with pytest.raises(ModelFailsError, match=message):
        generator.measure(LOAD, WINDOW, seed=1)
    erring.control.unload(model, 60.0)


@pytest.mark.parametrize(
    ("model", "protocol", "failed"),
    [
        ("often", "grpc", 8),
        ("often", "http", 8),
        ("once", "grpc", 1),
        ("unavailable", "grpc", 8),
        ("cancelled", "grpc", 8),
    ],
)
def test_client_of_tune_counts_errors_of_the_model(
    erring: Bench, model: str, protocol: str, failed: int
) -> None:
    erring.control.load(model, None, 60.0)
    measurement = erring.generator(model, TUNE_CLIENT, protocol=protocol).measure(
        LOAD, WINDOW, seed=1
    )
    erring.control.unload(model, 60.0)
    (message,) = (warning for warning in measurement.warning_texts if "out of paper" in warning)
    words, _, sent = message.removeprefix("The model answered ").partition(" of ")
    assert int(words) == pytest.approx(failed, abs=failed // 4)
    assert int(sent.split()[0]) == pytest.approx(SENT, rel=0.02)
    assert message.endswith("requests with an error: out of paper")
    assert (
        measurement.failures[FailureReason.OTHER].count == measurement.failed_count >= failed * 0.6
    )
    assert measurement.error_rate == measurement.failed_count / (
        measurement.completed_count + measurement.failed_count
    )
