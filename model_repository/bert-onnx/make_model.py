"""Makes 1/model.onnx and 2/model.onnx: a small BERT encoder for texts of up to 128 tokens.

The two versions differ in their weights only, which are drawn from a fixed seed each, so the
outputs mean nothing but are the same everywhere. Needs `onnx`, and `../tiny-bert/make_model.py`,
which has the layers:

    python model_repository/bert-onnx/make_model.py
"""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

HERE = Path(__file__).parent
LAYERS = SimpleNamespace(**runpy.run_path(str(HERE.parent / "tiny-bert" / "make_model.py")))
SIZE = LAYERS.Size(hidden=64, feed_forward=256, sequence=128, vocabulary=500)
VERSIONS = {1: 1, 2: 2}  # version: seed
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def embed(g: Any) -> str:
    """input_ids, token_type_ids [N, S] -> [N, S, H]: word plus type plus position, normalised."""
    words = g.op("Gather", g.weight(SIZE.vocabulary, SIZE.hidden), "input_ids")
    types = g.op("Gather", g.weight(2, SIZE.hidden), "token_type_ids")
    length = g.op("Shape", "input_ids", start=1, end=2)
    start = g.constant(np.array([0], np.int64))
    positions = g.op("Slice", g.weight(SIZE.sequence, SIZE.hidden), start, length)
    return g.norm(g.op("Add", g.op("Add", words, types), positions), SIZE.hidden)


def make(seed: int) -> onnx.ModelProto:
    """Inputs [N, S] -> last_hidden_state [N, S, H], pooler_output [N, H]."""
    g = LAYERS.Graph(seed)
    x, bias = embed(g), LAYERS.mask_bias(g)
    for _ in range(SIZE.layers):
        x = LAYERS.encode(g, x, bias, SIZE)
    g.op("Identity", x, output="last_hidden_state")
    first = g.op("Gather", x, g.constant(np.array(0, np.int64)), axis=1)
    g.op("Tanh", g.linear(first, SIZE.hidden, SIZE.hidden), output="pooler_output")

    def tensor(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, ["batch", *shape])

    graph = helper.make_graph(
        g.nodes,
        "bert-onnx",
        [tensor(name, TensorProto.INT64, "length") for name in INPUTS],
        [
            tensor("last_hidden_state", TensorProto.FLOAT, "length", SIZE.hidden),
            tensor("pooler_output", TensorProto.FLOAT, SIZE.hidden),
        ],
        g.constants,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", LAYERS.OPSET)],
        ir_version=LAYERS.IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    for version, seed in VERSIONS.items():
        onnx.save(make(seed), HERE / str(version) / "model.onnx")
