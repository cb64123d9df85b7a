"""Embeddings in, labels and their probabilities out: one product for all requests of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from head import Head


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.head = Head.of_seed(0)

    def execute(self, requests: list[Any]) -> list[Any]:
        parts = [pb_utils.get_input_tensor_by_name(r, "embedding").as_numpy() for r in requests]
        labels, scores = self.head.classify(np.concatenate(parts))
        responses, start = [], 0
        for part in parts:
            end = start + len(part)
            tensors = [
                pb_utils.Tensor("label", labels[start:end]),
                pb_utils.Tensor("score", scores[start:end]),
            ]
            responses.append(pb_utils.InferenceResponse(tensors))
            start = end
        return responses
