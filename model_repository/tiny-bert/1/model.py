"""Runs model.onnx on all requests of a batch at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("pooled", "logits")


def open_session(model: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle threads must not spin: instances, server and load generator share the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"]).get("parameters", {})
        threads = int(parameters.get("intra_op_num_threads", {}).get("string_value", "1"))
        self.session = open_session(Path(__file__).parent / "model.onnx", threads)

    def execute(self, requests: list[Any]) -> list[Any]:
        feed = {name: joined(requests, name) for name in INPUTS}
        outputs = self.session.run(OUTPUTS, feed)
        responses, start = [], 0
        for request in requests:
            end = start + rows(request)
            tensors = [
                pb_utils.Tensor(n, o[start:end]) for n, o in zip(OUTPUTS, outputs, strict=True)
            ]
            responses.append(pb_utils.InferenceResponse(tensors))
            start = end
        return responses


def joined(requests: list[Any], name: str) -> np.ndarray:
    """One input of all requests, [rows of all, sequence]; not copied when there is one."""
    parts = [pb_utils.get_input_tensor_by_name(r, name).as_numpy() for r in requests]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def rows(request: Any) -> int:
    return int(pb_utils.get_input_tensor_by_name(request, INPUTS[0]).shape()[0])
