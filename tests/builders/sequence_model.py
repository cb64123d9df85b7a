"""A model that counts the requests of each sequence by its correlation id, and sleeps."""

from __future__ import annotations

from pathlib import Path

from builders.model_files import write_model

#: It fails a request whose input is below 0, and a sequence that goes on without its start.
_MODEL = """
import time

import numpy as np
import triton_python_backend_utils as pb


def control(request, name):
    return pb.get_input_tensor_by_name(request, name).as_numpy().flat[0]


class TritonPythonModel:
    def initialize(self, args):
        self.counts = {}

    def execute(self, requests):
        time.sleep(SERVICE_S)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        key = str(control(request, "CORRID"))
        if control(request, "START"):
            self.counts[key] = 0
        if key not in self.counts:
            return pb.InferenceResponse(error=pb.TritonError("no such sequence"))
        self.counts[key] += 1
        count = self.counts[key]
        if control(request, "END"):
            del self.counts[key]
        x = pb.get_input_tensor_by_name(request, "x").as_numpy()
        if x.flat[0] < 0:
            return pb.InferenceResponse(error=pb.TritonError("negative input"))
        counts = np.array([[count]], dtype=np.int32)
        open_ones = np.array([[len(self.counts)]], dtype=np.int32)
        return pb.InferenceResponse([pb.Tensor("count", counts), pb.Tensor("open", open_ones)])
"""

CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [
  {{ name: "count" data_type: TYPE_INT32 dims: [ 1 ] }},
  {{ name: "open" data_type: TYPE_INT32 dims: [ 1 ] }}
]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
sequence_batching {{
  {strategy}
  control_input [
    {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} ] }},
    {{ name: "END" control [ {{ kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] }} ] }},
    {{ name: "CORRID" control [ {{ kind: CONTROL_SEQUENCE_CORRID data_type: {ids} }} ] }}
  ]
}}
"""


def sequence_config(name: str, strategy: str = "direct { }", ids: str = "TYPE_UINT64") -> str:
    return CONFIG.format(name=name, strategy=strategy, ids=ids)


def sequence_code(service_s: float) -> str:
    return _MODEL.replace("SERVICE_S", str(service_s))


def write_sequence_model(
    repository: Path,
    name: str,
    strategy: str = "direct { }",
    ids: str = "TYPE_UINT64",
    service_s: float = 0.002,
) -> Path:
    """Writes the model into a repository."""
    config = sequence_config(name, strategy, ids)
    return write_model(repository / name, config, sequence_code(service_s))
