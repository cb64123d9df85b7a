"""Each kind of number goes to a Python model and back whole, with the NumPy that is installed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import triton_to_np_dtype

from tuner.server.binaries import tritonserver
from tuner.server.control import Control
from tuner.triton.local import LocalLauncher

pytestmark = pytest.mark.integration

KINDS = (
    *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    *("FP16", "FP32", "FP64"),
)
MODEL = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([self.answer(tensor) for tensor in request.inputs()])
            for request in requests
        ]

    def answer(self, tensor):
        array = tensor.as_numpy()
        more = ~array if array.dtype == bool else array + array.dtype.type(1)
        return pb_utils.Tensor(tensor.name().replace("x", "y"), more.T)  # not contiguous
"""


def test_the_answers_are_right_in_every_kind_shape_and_order(tmp_path: Path) -> None:
    model = tmp_path / "models" / "m"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODEL)
    tensors = [
        f'{side} {{ name: "{name}_{kind}" data_type: TYPE_{kind} dims: [-1, -1] }}'
        for side, name in (("input", "x"), ("output", "y"))
        for kind in KINDS
    ]
    (model / "config.pbtxt").write_text("\n".join(['name: "m"\nbackend: "python"', *tensors]))
    with tritonserver(None, os.environ) as installation:
        launcher = LocalLauncher(installation, model.parent)
        with launcher.launch([], tmp_path / "server.log") as server:
            with InferenceServerClient(server.endpoints.grpc) as client:
                with Control(server.endpoints) as control:
                    control.load("m", None, 60.0)
                for shape in ((3, 4), (0, 4), (1, 1)):
                    sent = {k: np.arange(np.prod(shape)).reshape(shape) % 7 for k in KINDS}
                    sent = {k: v.astype(triton_to_np_dtype(k)) for k, v in sent.items()}
                    inputs = [
                        InferInput(f"x_{kind}", shape, kind).set_data_from_numpy(array)
                        for kind, array in sent.items()
                    ]
                    answer = client.infer("m", inputs)
                    for kind, array in sent.items():
                        expected = ~array if kind == "BOOL" else array + array.dtype.type(1)
                        np.testing.assert_array_equal(answer.as_numpy(f"y_{kind}"), expected.T)
