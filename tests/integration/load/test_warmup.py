"""A model_warmup that is tried on a real server, for a model that is slow at first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from builders.model_files import write_model
from pydantic import TypeAdapter

from tuner.load.generators import TUNE_CLIENT
from tuner.load.probes.warmup import WarmUp
from tuner.load.setup import Site, StreamRequests
from tuner.load.streams_load import streams_load
from tuner.modelconfig.message import parse
from tuner.server.binaries import Installation, tritonserver
from tuner.server.control import Control
from tuner.spec.workload import Workload
from tuner.triton.local import LocalLauncher

pytestmark = [pytest.mark.integration, pytest.mark.long]

FIRST_S, USUAL_S = 1.0, 0.1
#: The second call of each batch size is slow, as with torch.compile; of one size it is the first.
LAZY = f"""
import time

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.calls = dict()

    def execute(self, requests):
        ids = [pb.get_input_tensor_by_name(r, "ids").as_numpy() for r in requests]
        rows = sum(len(i) for i in ids)
        time.sleep({USUAL_S})
        self.calls[rows] = self.calls.get(rows, 0) + 1
        if self.calls[rows] == (1 if rows == 1 else 2):
            time.sleep({FIRST_S})
        if REFUSES and not any(i.any() for i in ids):
            raise ValueError("no token is 0")
        return [pb.InferenceResponse([pb.Tensor("n", np.array([[1]] * len(i), "i4"))]) for i in ids]
"""
CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 3
input [
  {{ name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }},
  {{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }}
]
output [ {{ name: "n" data_type: TYPE_INT32 dims: [ 1 ] }} ]
dynamic_batching {{ }}
"""
INPUTS = {"kind": "random", "shapes": {"ids": [16]}, "int_range": [1, 100]}

Try = Callable[[str], WarmUp | None]


@pytest.fixture(scope="module")
def attempt(program: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Try]:
    directory = tmp_path_factory.mktemp("warmup")
    repository = directory / "repository"
    for name, refuses in (("lazy", "False"), ("picky", "True")):
        write_model(repository / name, CONFIG.format(name=name), LAZY.replace("REFUSES", refuses))
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, repository)
        with launcher.launch([], directory / "log") as server, Control(server.endpoints) as control:
            site = Site(control, server.endpoints, program, directory)

            def tried(model: str) -> WarmUp | None:
                control.load(model, None, 60.0)
                requests = TypeAdapter(StreamRequests).validate_python(
                    {"model": model, "inputs": INPUTS}
                )
                load = streams_load(Workload(), {model: requests}, [model], site, TUNE_CLIENT)
                text = (repository / model / "config.pbtxt").read_text()
                return load.warm_up({model: text}, 60.0, lambda _: None)

            yield tried


def test_cost_of_first_calls_is_measured_without_and_with_a_warm_up(attempt: Try) -> None:
    warm_up = attempt("lazy")
    assert warm_up is not None
    assert warm_up.batch_sizes == (1, 2, 3)
    assert warm_up.first_s >= FIRST_S
    assert warm_up.first_warm_s is not None
    assert warm_up.load_warm_s is not None
    assert warm_up.first_warm_s < warm_up.first_s / 2
    assert warm_up.load_warm_s >= 3 * FIRST_S  # Triton runs every sample before the model is ready
    assert warm_up.helps
    samples = parse(CONFIG.format(name="lazy") + warm_up.block).model_warmup
    assert [s.batch_size for s in samples] == [1, 2, 3]
    assert min(s.count for s in samples[1:]) >= 2  # their second call is the slow one
    assert {(name, *tensor.dims) for s in samples for name, tensor in s.inputs.items()} == {
        ("ids", 16),
        ("text", 1),
    }


def test_model_that_refuses_the_samples_is_reported(attempt: Try) -> None:
    """In its own words, unless the server ends over it, as tritonserver 2.51 does at times."""
    warm_up = attempt("picky")
    assert warm_up is not None
    assert not warm_up.helps
    assert "no token is 0" in warm_up.refused or "the server is gone" in warm_up.refused
    assert "was tried, and refused: " in warm_up.sentence
