"""Rules for the tensors of a model beyond their own dims: reshapes, and control of sequences.

From ValidateIOShape, GetBooleanSequenceControlProperties and GetTypedSequenceControlProperties in
core's model_config_utils.cc. "refused" and "loads" is what tritonserver 2.51 (24.10) did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tuner.modelconfig.backends import Mistake, is_tensorrt, may_set_batch
from tuner.modelconfig.schema import ModelConfig, enum_name

_SWITCHES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_TYPED = ("CONTROL_SEQUENCE_CORRID",)
_CORRID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_TENSORRT_FLAGS = ("is_shape_tensor", "is_non_linear_format_io")
_BATCH_TYPES = ("TYPE_INT32", "TYPE_FP32")


def reshape_mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """A different number of elements than dims, in all or around an open dimension: refused.

    An empty shape is one element, and needs a model that batches.
    """
    for field in ("input", "output"):
        for index, tensor in enumerate(getattr(config, field)):
            if not tensor.HasField("reshape") or not tensor.dims:
                continue
            dims, shape = list(tensor.dims), list(tensor.reshape.shape)
            if problem := _reshape(dims, shape, config):
                text = f"{field} {tensor.name} has dims {dims}, reshaped to {shape}: {problem}"
                hint = "give both as many elements, also between one -1 and the next"
                yield f"{field}[{index}].reshape", text, hint


def _reshape(dims: list[int], shape: list[int], config: ModelConfig) -> str:
    wrong = [dim for dim in shape if dim < 1 and dim != -1]
    if wrong:
        return f"{wrong[0]} is not a dimension"
    if not shape and config.max_batch_size == 0 and not may_set_batch(config):
        return "a scalar needs a batch around it"
    if -1 in dims and -1 in shape and dims.count(-1) != shape.count(-1):
        return "a different number of open dimensions"
    return "" if _segments(dims) == _segments(shape) else "a different number of elements"


def _segments(dims: Sequence[int]) -> list[int]:
    """Elements before, between and after the open dimensions."""
    ends = [i for i, dim in enumerate(dims) if dim == -1]
    starts = [0, *(end + 1 for end in ends)]
    return [prod(dims[a:b]) for a, b in zip(starts, [*ends, len(dims)], strict=True)]


def batch_io_mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """Sources and types of batch_input, sources and targets of batch_output: refused.

    A batch_output without a target does not only fail its model: it ends the server.
    """
    if not config.batch_input and not config.batch_output:
        return
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for index, batch in enumerate(config.batch_input):
        path = f"batch_input[{index}]"
        yield from _sources(path, batch, inputs)
        if (given := enum_name(batch, "data_type")) not in _BATCH_TYPES:
            yield path, f"a batch_input has data_type {given}", " or ".join(_BATCH_TYPES)
    for index, batch_output in enumerate(config.batch_output):
        path = f"batch_output[{index}]"
        yield from _sources(path, batch_output, inputs)
        if not batch_output.target_name:
            text = "a batch_output has no target_name, which ends tritonserver"
            yield path, text, "name the outputs it is for"
        targets = list(batch_output.target_name)
        for name in dict.fromkeys(targets):
            if outputs and name not in outputs:
                yield path, f"there is no output {name!r}", f"it has {', '.join(sorted(outputs))}"
            if targets.count(name) > 1:
                yield path, f"target {name!r} is named more than once", "name it once"


def _sources(path: str, batch: Any, inputs: set[str]) -> Iterator[Mistake]:
    sources = list(batch.source_input)
    if len(sources) != 1:
        kind = batch.Kind.Name(batch.kind)
        yield path, f"{kind} has {len(sources)} source_inputs", "give it one"
    elif inputs and sources[0] not in inputs:
        yield path, f"there is no input {sources[0]!r}", f"it has {', '.join(sorted(inputs))}"


def control_mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """A control kind or tensor twice, and one without its values for false and true: refused."""
    tensors: set[str] = set()
    kinds: set[str] = set()
    for index, tensor in enumerate(config.sequence_batching.control_input):
        path = f"sequence_batching.control_input[{index}]"
        if not tensor.name:
            yield path, "a control tensor has no name", ""
        elif tensor.name in tensors:
            yield path, f"control tensor {tensor.name} is given twice", "give each its own name"
        tensors.add(tensor.name)
        for control in tensor.control:
            kind = control.Kind.Name(control.kind)
            if kind in kinds:
                yield path, f"{kind} is given by two control tensors", "keep one of them"
            kinds.add(kind)
            yield from _values(path, tensor.name, kind, control)


def _values(path: str, name: str, kind: str, control: Any) -> Iterator[Mistake]:
    given = [switch for switch in _SWITCHES if getattr(control, switch)]
    if kind in _TYPED:
        if given:
            yield path, f"{kind} of {name} has a data_type, and no {given[0]}", f"drop {given[0]}"
        if (data_type := enum_name(control, "data_type")) not in _CORRID_TYPES:
            yield path, f"{kind} of {name} has data_type {data_type}", " or ".join(_CORRID_TYPES)
        return
    if len(given) != 1:
        found = " and ".join(given) or "none"
        text = f"{kind} of {name} needs one of {', '.join(_SWITCHES)}; it has {found}"
        yield path, text, "int32_false_true: [ 0, 1 ]"
    elif len(getattr(control, given[0])) != 2:
        text = f"{given[0]} of {name} has two values, for false and for true"
        yield path, text, f"{given[0]}: [ 0, 1 ]"


def format_mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """Shape tensors and formats that do not fit the backend or the number of dims: refused."""
    for field in ("input", "output"):
        for index, tensor in enumerate(getattr(config, field)):
            for flag in _TENSORRT_FLAGS:
                if getattr(tensor, flag) and not is_tensorrt(config):
                    text = f"{flag} is for TensorRT models only"
                    yield f"{field}[{index}].{flag}", text, "leave it out"
            images = field == "input" and tensor.format
            if (images or tensor.is_non_linear_format_io) and tensor.dims and len(tensor.dims) != 3:
                what = enum_name(tensor, "format") if images else _TENSORRT_FLAGS[1]
                text = f"{what} needs 3 dims, and {field} {tensor.name} has {len(tensor.dims)}"
                yield f"{field}[{index}].dims", text, "dims leave the batch out"


def warmup_mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """An open dimension in a sample: refused."""
    for index, sample in enumerate(config.model_warmup):
        for name in sorted(sample.inputs) if sample.batch_size else ():
            if -1 in sample.inputs[name].dims:
                text = f"model_warmup gives input {name} an open dimension"
                yield f"model_warmup[{index}]", text, "give it a size"
