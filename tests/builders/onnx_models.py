"""Small ONNX models for tests, the same bytes every time, and where their backend is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: For a server: where the stand-in for NVIDIA's backend is.
ARGUMENT = f"--backend-directory={Path(__file__).parents[1] / 'backends'}"
_VOCABULARY, _HIDDEN = 100, 32


def perceptron(*, batch: int | str = "batch") -> onnx.ModelProto:
    """x [batch, 8] -> y [batch, 4], FP32."""
    random = np.random.RandomState(0)
    weights = [_weight(random, "w0", 8, 32), _weight(random, "w1", 32, 4)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("MatMul", ["active", "w1"], ["y"]),
    ]
    return _model(nodes, [_info("x", [batch, 8])], [_info("y", [batch, 4])], weights)


def encoder() -> onnx.ModelProto:
    """ids [batch, length], INT64 -> every [batch, length, 32] and pooled [batch, 32]."""
    random = np.random.RandomState(1)
    weights = [
        _weight(random, "words", _VOCABULARY, _HIDDEN),
        _weight(random, "w", _HIDDEN, _HIDDEN),
    ]
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["embedded"]),
        helper.make_node("Transpose", ["embedded"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["embedded", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["attended"], axis=-1),
        helper.make_node("MatMul", ["attended", "embedded"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "w"], ["every"]),
        helper.make_node("ReduceMax", ["every"], ["pooled"], axes=[1], keepdims=0),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])
    outputs = [_info("every", ["batch", "length", _HIDDEN]), _info("pooled", ["batch", _HIDDEN])]
    return _model(nodes, [ids], outputs, weights)


def scaled() -> onnx.ModelProto:
    """x [length] -> y [length]: x times `scale`, an input that is 3 where it is left out."""
    scale = numpy_helper.from_array(np.array([3], np.float32), "scale")
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"])]
    inputs = [_info("x", ["length"]), _info("scale", [1])]
    return _model(nodes, inputs, [_info("y", ["length"])], [scale])


def constant() -> onnx.ModelProto:
    """x [batch, 8] -> y [batch, 8]: x and a sum of constants, some 100 ms of work unless folded."""
    random = np.random.RandomState(2)
    weights = [_weight(random, f"w{i}", 512, 512) for i in range(9)]
    nodes = [helper.make_node("MatMul", ["w0", "w1"], ["p1"])]
    for i in range(2, 9):
        nodes.append(helper.make_node("Tanh", [f"p{i - 1}"], [f"t{i}"]))
        nodes.append(helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"p{i}"]))
    nodes += [
        helper.make_node("Tanh", ["p8"], ["last"]),
        helper.make_node("ReduceMean", ["last"], ["mean"], axes=[0, 1], keepdims=0),
        helper.make_node("Add", ["x", "mean"], ["y"]),
    ]
    return _model(nodes, [_info("x", ["batch", 8])], [_info("y", ["batch", 8])], weights)


def place(
    repository: Path, name: str, model: onnx.ModelProto | bytes | None, config: str | None = None
) -> Path:
    """Puts a model, or what is left of one, into a repository; returns its directory."""
    directory = repository / name
    (directory / "1").mkdir(parents=True)
    if model is not None:
        data = model if isinstance(model, bytes) else model.SerializeToString()
        (directory / "1" / "model.onnx").write_bytes(data)
    if config is not None:
        (directory / "config.pbtxt").write_text(config)
    return directory


def _weight(random: np.random.RandomState, name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)


def _info(name: str, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: list[onnx.TensorProto],
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "m", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
