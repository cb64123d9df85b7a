"""A model of texts: it sleeps, and answers with the sum of each text's ids."""

from __future__ import annotations

TEXT_CONFIG = """
name: "texts"
backend: "python"
max_batch_size: 8
input [ { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "sum" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""

_CODE = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        ids = [pb.get_input_tensor_by_name(r, "ids").as_numpy() for r in requests]
        time.sleep(%r + %r * sum(i.size for i in ids))
        sums = [i.sum(axis=1, keepdims=True).astype("i4") for i in ids]
        return [pb.InferenceResponse([pb.Tensor("sum", s)]) for s in sums]
"""


def text_code(service_s: float, token_s: float = 0.0) -> str:
    """Its code; ``token_s`` is added for each id of the requests that it executes together."""
    return _CODE % (service_s, token_s)
