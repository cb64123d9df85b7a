"""The memory of a real server over a load: of a model that keeps its requests, and of one not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders.load_bench import Bench, serving_all
from builders.model_files import write_model

from tuner.load.generators import TUNE_CLIENT
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.measurement.measurement import Arrivals, LoadPoint
from tuner.measurement.window import Window
from tuner.reason import ReasonKind
from tuner.record.confirmation import Soaked
from tuner.server.binaries import Installation
from tuner.server.server import Place
from tuner.spec.workload import RandomInputs, Workload

pytestmark = [pytest.mark.integration, pytest.mark.long]

WINDOW = Window(duration_s=12.0, warmup_s=2.0, deadline_s=60.0, tail_s=0.5)
CODE = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        self.kept += [np.ones(KEPT, dtype="u1") for _ in requests]
        answer = pb.Tensor("y", np.zeros((1, 1), dtype=np.float32))
        return [pb.InferenceResponse([answer]) for _ in requests]
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
instance_group { count: 1 kind: KIND_CPU }
"""


@pytest.fixture(scope="module")
def bench(program: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("memory")
    for name, kept in (("leaking", "50000"), ("tidy", "0")):
        write_model(directory / "repository" / name, CONFIG, CODE.replace("KEPT", kept))
    with serving_all(program, directory, ["leaking", "tidy"]) as served:
        yield served


@pytest.mark.parametrize(("model", "grows"), [("leaking", True), ("tidy", False)])
def test_memory_that_a_model_keeps_shows_as_growth(bench: Bench, model: str, grows: bool) -> None:
    endpoints = bench.server.endpoints
    site = Site(bench.control, endpoints, bench.program, bench.directory, Place.HERE)
    requests = {model: StreamRequests(model, RandomInputs(kind="random"))}
    load = streams_load(Workload(), requests, [model], site, TUNE_CLIENT)
    measurement = load.measure(LoadPoint(Arrivals.POISSON, 100.0), WINDOW, 1)
    assert measurement.host.memory is not None
    assert measurement.host.memory.used_bytes > 10e6
    kinds = [reason.kind for reason in Soaked(measurement, ()).trends]
    assert (ReasonKind.MEMORY_GROWS in kinds) is grows
    if grows:
        assert measurement.host.memory.growth_bytes == pytest.approx(50e3 * 100 * 12, rel=0.15)
