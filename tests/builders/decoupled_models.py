"""Decoupled models that sleep, so that it is known when each response comes."""

from __future__ import annotations

from pathlib import Path

from builders.model_files import write_model

#: From one response to the next, and how many there are.
GAP_S, RESPONSES = 0.020, 4

_MODEL = """
import threading
import time

import triton_python_backend_utils as pb

FINAL = pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        begun = time.monotonic()
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            work = (begun, request.get_response_sender(), x)
            threading.Thread(target=self.answer, args=work).start()

    def answer(self, begun, sender, x):
        # the input says after how many milliseconds the first response comes
        delay_s = float(x.flat[0]) / 1e3
        if delay_s < 0:
            error = pb.InferenceResponse(error=pb.TritonError("negative delay"))
            sender.send(error, flags=FINAL)
            return
        for k in range(RESPONSES):
            time.sleep(max(begun + delay_s + k * GAP_S - time.monotonic(), 0.0))
            sender.send(pb.InferenceResponse([pb.Tensor("y", x)]))
        if x.flat[0] != LOST:
            sender.send(flags=FINAL)
"""

#: After so many milliseconds the first response comes, and never a final one.
LOST_MS = 13.0

_ENSEMBLE_STEP = """
  step {
    model_name: "delays" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }
  }
"""
TENSORS = """
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
CPU = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"


def write_delays(repository: Path) -> None:
    """`delays`, which sends the first response after the milliseconds that its input says.

    Then come `RESPONSES` less one, `GAP_S` apart, and an empty final one. And `over`, an ensemble
    of nothing but it.
    """
    code = _MODEL.replace("GAP_S", str(GAP_S)).replace("RESPONSES", str(RESPONSES))
    code = code.replace("LOST", str(LOST_MS))
    config = f'backend: "python"\n{TENSORS}{DECOUPLED}{CPU}dynamic_batching {{ }}\n'
    write_model(repository / "delays", config, code)
    steps = f"ensemble_scheduling {{ {_ENSEMBLE_STEP} }}"
    write_model(repository / "over", f'platform: "ensemble"\n{TENSORS}{steps}')
