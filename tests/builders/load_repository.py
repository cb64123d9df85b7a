"""Models for the tests of load: they sleep, so that their capacity is known and CPU is free."""

from __future__ import annotations

from pathlib import Path

from builders.model_files import write_model

#: Seconds the model works on each execution, whatever its size.
SERVICE_S = 0.010
#: Without batching and with one instance: executions per second at the most.
CAPACITY_PER_S = 1.0 / SERVICE_S

_MODEL = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(SERVICE_S)
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x")
            if x.as_numpy().flat[0] < 0:
                answers.append(pb.InferenceResponse(error=pb.TritonError("negative input")))
            else:
                answers.append(pb.InferenceResponse([pb.Tensor("y", x.as_numpy())]))
        return answers
"""

_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 4
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 8 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ 8 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
{more}
"""

_ECHO = """
import json

import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.names = [i["name"] for i in json.loads(args["model_config"])["input"]]

    def execute(self, requests):
        return [pb.InferenceResponse([self.sizes(request)]) for request in requests]

    def sizes(self, request):
        import numpy as np

        tensors = [pb.get_input_tensor_by_name(request, name) for name in self.names]
        return pb.Tensor("sizes", np.array([[t.as_numpy().size for t in tensors]], dtype=np.int32))
"""

#: Everything the Python backend takes; BF16 is not among it.
DATATYPES = (
    *("BOOL", "STRING", "FP16", "FP32", "FP64"),
    *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
)


_IMAGE = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", t[:, 0, 0, :8].copy())]) for t in tensors]
"""


def make_repository(directory: Path, service_s: float = SERVICE_S) -> Path:
    """Models ``plain``, ``cached`` (the same with the response cache), ``types`` and ``image``."""
    model = _MODEL.replace("SERVICE_S", str(service_s))
    repository = directory / "repository"
    cached = "response_cache { enable: true }"
    write_model(repository / "plain", _CONFIG.format(name="plain", more=""), model)
    write_model(repository / "cached", _CONFIG.format(name="cached", more=cached), model)
    image = _CONFIG.format(name="image", more="").replace("[ 8 ]", "[ 3, 224, 224 ]", 1)
    write_model(repository / "image", image, _IMAGE)
    inputs = "".join(
        f'input [ {{ name: "{t}" data_type: TYPE_{t} dims: [ -1, 2 ] }} ]\n' for t in DATATYPES
    )
    output = f'output [ {{ name: "sizes" data_type: TYPE_INT32 dims: [ {len(DATATYPES)} ] }} ]\n'
    config = f'name: "types"\nbackend: "python"\nmax_batch_size: 4\n{inputs}{output}'
    write_model(repository / "types", config, _ECHO)
    return repository
