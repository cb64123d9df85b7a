"""Makes 1/model.onnx: a BERT encoder, small enough to keep in the repository.

The architecture is BERT's (post-norm, GELU, learned positions, tanh pooler); the weights are
drawn from a fixed seed, so the outputs mean nothing but are the same everywhere. Needs `onnx`:

    python model_repository/tiny-bert/make_model.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20  # the first with Gelu
IR_VERSION = 9


@dataclass(frozen=True)
class Size:
    layers: int = 2
    hidden: int = 128
    heads: int = 2
    feed_forward: int = 512
    sequence: int = 16
    vocabulary: int = 1000
    labels: int = 2


class Graph:
    """Nodes and weights in the order they are added; tensors are named by number."""

    def __init__(self, seed: int) -> None:
        # RandomState: the one generator of numpy whose stream never changes between versions.
        self.random = np.random.RandomState(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant((self.random.standard_normal(shape) * 0.1).astype(np.float32))

    def op(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def linear(self, x: str, inputs: int, outputs: int, output: str = "") -> str:
        product = self.op("MatMul", x, self.weight(inputs, outputs))
        return self.op("Add", product, self.weight(outputs), output=output)

    def norm(self, x: str, hidden: int) -> str:
        scale = self.constant(np.ones(hidden, np.float32))
        bias = self.constant(np.zeros(hidden, np.float32))
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)


def embed(g: Graph, size: Size) -> str:
    """input_ids [N, S] -> [N, S, H]: word plus position, normalised."""
    words = g.op("Gather", g.weight(size.vocabulary, size.hidden), "input_ids")
    return g.norm(g.op("Add", words, g.weight(size.sequence, size.hidden)), size.hidden)


def mask_bias(g: Graph) -> str:
    """attention_mask [N, S] -> [N, 1, 1, S]: 0 where attended, -10000 where masked."""
    mask = g.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = g.op("Unsqueeze", mask, g.constant(np.array([1, 2], np.int64)))
    masked = g.op("Sub", g.constant(np.array(1, np.float32)), mask)
    return g.op("Mul", masked, g.constant(np.array(-10000, np.float32)))


def attend(g: Graph, x: str, bias: str, size: Size) -> str:
    """Multi-head self-attention, [N, S, H] -> [N, S, H]."""
    per_head = size.hidden // size.heads
    split = g.constant(np.array([0, 0, size.heads, per_head], np.int64))

    def heads(order: list[int]) -> str:
        projected = g.linear(x, size.hidden, size.hidden)
        return g.op("Transpose", g.op("Reshape", projected, split), perm=order)

    query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scale = g.constant(np.array(per_head**-0.5, np.float32))
    scores = g.op("Add", g.op("Mul", g.op("MatMul", query, key), scale), bias)
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
    joined = g.op("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = g.op("Reshape", joined, g.constant(np.array([0, 0, size.hidden], np.int64)))
    return g.linear(joined, size.hidden, size.hidden)


def encode(g: Graph, x: str, bias: str, size: Size) -> str:
    """One encoder layer, [N, S, H] -> [N, S, H]."""
    x = g.norm(g.op("Add", x, attend(g, x, bias, size)), size.hidden)
    inner = g.op("Gelu", g.linear(x, size.hidden, size.feed_forward))
    outer = g.linear(inner, size.feed_forward, size.hidden)
    return g.norm(g.op("Add", x, outer), size.hidden)


def make(size: Size, seed: int = 0) -> onnx.ModelProto:
    """input_ids, attention_mask [N, S] -> pooled [N, H], logits [N, labels]."""
    g = Graph(seed)
    x, bias = embed(g, size), mask_bias(g)
    for _ in range(size.layers):
        x = encode(g, x, bias, size)
    first = g.op("Gather", x, g.constant(np.array(0, np.int64)), axis=1)
    g.op("Tanh", g.linear(first, size.hidden, size.hidden), output="pooled")
    g.linear("pooled", size.hidden, size.labels, output="logits")

    def tensor(name: str, kind: int, width: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, ["batch", width])

    graph = helper.make_graph(
        g.nodes,
        "tiny-bert",
        [tensor(n, TensorProto.INT64, size.sequence) for n in ("input_ids", "attention_mask")],
        [
            tensor("pooled", TensorProto.FLOAT, size.hidden),
            tensor("logits", TensorProto.FLOAT, size.labels),
        ],
        g.constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    onnx.save(make(Size()), Path(__file__).parent / "1" / "model.onnx")
