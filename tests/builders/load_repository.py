"""Models for the tests of load: they sleep, so that their capacity is known and CPU is free."""

from __future__ import annotations

from pathlib import Path

from builders.decoupled_models import write_delays
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

#: Its answers depend on what the response cache's key does not have: parameters and shapes.
_SCALING = """
import json

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb.get_input_tensor_by_name(request, "x").as_numpy()
        scale = json.loads(request.parameters() or "{}").get("scale", 1)
        y = pb.Tensor("y", x * np.float32(scale))
        size = pb.Tensor("size", np.full((len(x), 1), x.shape[1], np.int32))
        asked = request.requested_output_names()
        return pb.InferenceResponse([t for t in (y, size) if t.name() in asked])
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


_SIZE = '[ {{ name: "size" data_type: TYPE_INT32 dims: [ 1 ] }}, {{ name: "y"'
_IMAGE = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", t[:, 0, 0, :8].copy())]) for t in tensors]
"""


_WORDS = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        texts = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        lengths = [np.array([[len(own) for own in row] for row in t], dtype="i4") for t in texts]
        return [pb.InferenceResponse([pb.Tensor("y", own)]) for own in lengths]
"""

#: Seconds for each token of `texts` and `ragged`, beside the model's own for each execution.
TOKEN_S = 0.0001

_TEXTS = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        texts = [pb.get_input_tensor_by_name(r, "ids") for r in requests]
        time.sleep(SERVICE_S / 10 + TOKEN_S * sum(t.as_numpy().size for t in texts))
        if len({t.as_numpy().shape for t in texts}) > 1:
            return [pb.InferenceResponse(error=pb.TritonError("unlike lengths")) for _ in texts]
        return [pb.InferenceResponse([pb.Tensor("ids", t.as_numpy())]) for t in texts]
"""

_TEXTS_CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 8
input [ {{ name: "ids" data_type: TYPE_INT32 dims: [ -1 ] {ragged} }} ]
output [ {{ name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
dynamic_batching {{ max_queue_delay_microseconds: 20000 }}
{more}
"""
_LENGTHS = """
batch_input [
  {
    kind: BATCH_ACCUMULATED_ELEMENT_COUNT
    target_name: "ends"
    data_type: TYPE_FP32
    source_input: "ids"
  }
]
"""


def make_repository(directory: Path, service_s: float = SERVICE_S) -> Path:
    """Models ``plain``, ``cached`` (the same with the response cache), ``types`` and ``image``.

    And ``words``, which answers with the length of a text; and ``texts`` and ``ragged``, which fail
    a batch of unlike lengths; Triton makes such batches of the latter. And decoupled ones. And
    ``scaling`` and ``scaling-cached``, whose answers depend on parameters and shapes.
    """
    model = _MODEL.replace("SERVICE_S", str(service_s))
    repository = directory / "repository"
    cached = "response_cache { enable: true }"
    write_model(repository / "plain", _CONFIG.format(name="plain", more=""), model)
    write_model(repository / "cached", _CONFIG.format(name="cached", more=cached), model)
    scaling = _CONFIG.replace("[ 8 ]", "[ -1 ]").replace('[ {{ name: "y"', _SIZE)
    for name, more in (("scaling", ""), ("scaling-cached", cached)):
        write_model(repository / name, scaling.format(name=name, more=more), _SCALING)
    image = _CONFIG.format(name="image", more="").replace("[ 8 ]", "[ 3, 224, 224 ]", 1)
    write_model(repository / "image", image, _IMAGE)
    words = _CONFIG.format(name="words", more="").replace(
        "FP32 dims: [ 8 ]", "STRING dims: [ 1 ]", 1
    )
    write_model(
        repository / "words", words.replace("FP32 dims: [ 8 ]", "INT32 dims: [ 1 ]"), _WORDS
    )
    inputs = "".join(
        f'input [ {{ name: "{t}" data_type: TYPE_{t} dims: [ -1, 2 ] }} ]\n' for t in DATATYPES
    )
    output = f'output [ {{ name: "sizes" data_type: TYPE_INT32 dims: [ {len(DATATYPES)} ] }} ]\n'
    config = f'name: "types"\nbackend: "python"\nmax_batch_size: 4\n{inputs}{output}'
    write_model(repository / "types", config, _ECHO)
    code = _TEXTS.replace("SERVICE_S", str(service_s)).replace("TOKEN_S", str(TOKEN_S))
    texts = _TEXTS_CONFIG.format(name="texts", ragged="", more="")
    write_model(repository / "texts", texts, code)
    ragged = _TEXTS_CONFIG.format(name="ragged", ragged="allow_ragged_batch: true", more=_LENGTHS)
    write_model(repository / "ragged", ragged, code)
    write_delays(repository)
    return repository
