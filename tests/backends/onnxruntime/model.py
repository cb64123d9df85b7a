"""A stand-in for NVIDIA's ONNX Runtime backend, for tests and `benchmarks/real` only.

It is not NVIDIA's backend. Triton takes a directory `onnxruntime` with a `model.py` for a backend
in Python and gives it every model of that backend. The answers and the threads, which spin while
they wait, are those of the real ONNX Runtime. What is completed, checked and refused, and in which
words, is what NVIDIA's backend was seen to do on Triton 2.51, on a CPU. Loading differs: an
instance is a process, which takes a second to start. The accelerator `openvino` is taken and
changes nothing. Not here: GPUs, strings, sequences, ragged batches, scalars in batches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

DEFAULT_MAX_BATCH_SIZE = 4
TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "int8": "TYPE_INT8",
    "uint16": "TYPE_UINT16",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float": "TYPE_FP32",
    "double": "TYPE_FP64",
}
#: By `optimization.graph.level`, where it is not 0.
GRAPH_LEVELS = {
    -1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    1: onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        given = config.as_dict()
        if given["input"] and given["output"]:
            return config  # as the real one: a config with both is left as it is
        # The only place where the path is to be had: the stub's first argument.
        path = Path("/proc/self/cmdline").read_bytes().split(b"\0")[1].decode()
        complete(given, Signature.of(open_session(Path(path), given)))
        return config

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        file = config.get("default_model_filename") or "model.onnx"
        path = Path(args["model_repository"]) / args["model_version"] / file
        self.session = open_session(path, config)
        check(config, Signature.of(self.session))
        self.batches = config["max_batch_size"] > 0
        self.inputs = [tensor["name"] for tensor in config["input"]]
        self.outputs = [tensor["name"] for tensor in config["output"]]
        pb_utils.Logger.log_warn(
            f"{args['model_instance_name']} is served by a stand-in for tests over ONNX Runtime "
            f"{onnxruntime.__version__}, not by NVIDIA's ONNX Runtime backend"
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Runs all requests at once if the model batches; Triton only joins equal shapes."""
        if self.batches:
            return self.run(requests)
        return [response for request in requests for response in self.run([request])]

    def run(self, requests: list[Any]) -> list[Any]:
        given = [
            {
                name: tensor.as_numpy()
                for name in self.inputs
                if (tensor := pb_utils.get_input_tensor_by_name(request, name)) is not None
            }
            for request in requests
        ]
        feed = given[0]
        if len(requests) > 1:
            feed = {name: np.concatenate([part[name] for part in given]) for name in feed}
        try:
            outputs = self.session.run(self.outputs, feed)
        except Exception as error:  # whatever ONNX Runtime raises fails these requests only
            failure = pb_utils.TritonError(in_its_words(error))
            return [pb_utils.InferenceResponse(error=failure) for _ in requests]
        ends = np.cumsum([len(next(iter(part.values()))) for part in given]) if self.batches else []
        parts = [np.split(output, ends[:-1]) if self.batches else [output] for output in outputs]
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(name, part) for name, part in zip(self.outputs, of, strict=True)]
            )
            for of in zip(*parts, strict=True)
        ]


@dataclass(frozen=True)
class Signature:
    """Tensors of a model by name: Triton's type, and the shape, -1 where it is open."""

    inputs: dict[str, tuple[str, list[int]]]
    optional: dict[str, tuple[str, list[int]]]
    outputs: dict[str, tuple[str, list[int]]]

    @classmethod
    def of(cls, session: onnxruntime.InferenceSession) -> Signature:
        return cls(
            _tensors(session.get_inputs()),
            _tensors(session.get_overridable_initializers()),
            _tensors(session.get_outputs()),
        )

    def batches(self) -> bool:
        shapes = [shape for _, shape in (*self.inputs.values(), *self.outputs.values())]
        return all(shape[:1] == [-1] for shape in shapes)


def _tensors(nodes: list[Any]) -> dict[str, tuple[str, list[int]]]:
    return {
        node.name: (
            TYPES.get(node.type.removeprefix("tensor(").removesuffix(")"), "TYPE_INVALID"),
            [size if isinstance(size, int) else -1 for size in node.shape],
        )
        for node in nodes
    }


def refuse(words: str) -> NoReturn:
    raise pb_utils.TritonModelException(words)


def in_its_words(error: Exception) -> str:
    """What the real backend makes of an error: `onnx runtime error 7: ...`."""
    pattern = r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)"
    match = re.match(pattern, str(error), re.DOTALL)
    return f"onnx runtime error {match[1]}: {match[2]}" if match else str(error)


def open_session(path: Path, config: dict[str, Any]) -> onnxruntime.InferenceSession:
    """Opens the model with ONNX Runtime's own defaults, unless the config says otherwise."""
    options = onnxruntime.SessionOptions()
    given = {name: p["string_value"] for name, p in config.get("parameters", {}).items()}
    level = int(config.get("optimization", {}).get("graph", {}).get("level", 0))
    options.graph_optimization_level = GRAPH_LEVELS.get(
        level, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    )
    mode = _number(given, "execution_mode")
    if mode not in (0, 1):
        refuse(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 "
            f"but got {mode} ."
        )
    options.execution_mode = onnxruntime.ExecutionMode(mode)
    # No number, 0 and less: as many as ONNX Runtime likes, one for each core.
    options.intra_op_num_threads = max(_number(given, "intra_op_thread_count"), 0)
    options.inter_op_num_threads = max(_number(given, "inter_op_thread_count"), 0)
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    for accelerator in accelerators.get("cpu_execution_accelerator", []):
        if accelerator["name"] != "openvino":
            refuse(f"unknown Execution Accelerator '{accelerator['name']}' is requested")
    options.enable_cpu_mem_arena = given.get("enable_mem_arena", "1") in ("1", "true")
    options.enable_mem_pattern = given.get("enable_mem_pattern", "1") in ("1", "true")
    if not path.exists():
        refuse(f"failed to stat file {path}")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        refuse(in_its_words(error))


def _number(given: dict[str, str], name: str) -> int:
    text = given.get(name, "0")
    try:
        return int(text)
    except ValueError:
        refuse(f"failed to convert '{text}' to integral number")


def complete(config: dict[str, Any], model: Signature) -> None:
    """Fills in what the file leaves out: sizes, tensors, and the batcher where sizes allow it."""
    if model.batches():
        config["max_batch_size"] = config["max_batch_size"] or DEFAULT_MAX_BATCH_SIZE
        if config["max_batch_size"] > 1 and "sequence_batching" not in config:
            config.setdefault("dynamic_batching", {})
    elif config["max_batch_size"]:
        refuse(
            f"autofill failed for model '{config['name']}': model does not support batching while "
            "non-zero max_batch_size is specified"
        )
    skipped = 1 if config["max_batch_size"] else 0
    for kind, tensors in (("input", model.inputs), ("output", model.outputs)):
        config[kind] = config[kind] or [
            {"name": name, "data_type": data_type, "dims": shape[skipped:]}
            for name, (data_type, shape) in tensors.items()
        ]


def check(config: dict[str, Any], model: Signature) -> None:
    """Refuses a config that does not fit its model."""
    required = sum(not tensor.get("optional") for tensor in config["input"])
    if required != len(model.inputs):
        refuse(
            f"unable to load model '{config['name']}', configuration expects {required} inputs, "
            f"model provides {len(model.inputs)}"
        )
    for tensor in config["input"]:
        if tensor.get("optional") and config["max_batch_size"]:
            refuse(
                f"unable to load model '{config['name']}', optional input '{tensor['name']}' is "
                "not supported for models that support batching"
            )
        _check_tensor(config, tensor, "input", {**model.inputs, **model.optional}, _unlike_input)
    for tensor in config["output"]:
        _check_tensor(config, tensor, "output", model.outputs, _unlike_output)


def _unlike_input(model: int, config: int) -> bool:
    return model not in (-1, config)


def _unlike_output(model: int, config: int) -> bool:
    return model != config


def _check_tensor(
    config: dict[str, Any],
    tensor: dict[str, Any],
    kind: str,
    tensors: dict[str, tuple[str, list[int]]],
    unlike: Callable[[int, int], bool],
) -> None:
    model, name = config["name"], tensor["name"]
    if name not in tensors:
        allowed = ", ".join(sorted(tensors))
        refuse(f"unexpected inference {kind} '{name}', allowed {kind}s are: {allowed}")
    data_type, shape = tensors[name]
    if data_type != tensor["data_type"]:
        refuse(
            f"unable to load model '{model}', configuration expects datatype "
            f"{tensor['data_type']} for {kind} '{name}', model provides {data_type}"
        )
    dims = [int(dim) for dim in tensor.get("reshape", {}).get("shape", tensor["dims"])]
    batches = config["max_batch_size"] > 0
    if batches and shape[:1] != [-1]:
        refuse(
            f"model '{model}', tensor '{name}': for the model to support batching the shape should "
            "have at least 1 dimension and the first dimension must be -1; but shape expected by "
            f"the model is {_dims_text(shape)}"
        )
    expected = [-1, *dims] if batches else dims
    if len(expected) != len(shape) or any(map(unlike, shape, expected)):
        made = (
            "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor "
            f"shape, making complete shape {_dims_text(expected)}"
            if batches
            else f"shape {_dims_text(expected)}"
        )
        refuse(
            f"model '{model}', tensor '{name}': the model expects {len(shape)} dimensions (shape "
            f"{_dims_text(shape)}) but the model configuration specifies {len(expected)} "
            f"dimensions ({made})"
        )


def _dims_text(shape: list[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
