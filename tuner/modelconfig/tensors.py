"""Rules for the tensors of a model beyond their own dims: reshapes, and control of sequences.

From ValidateIOShape, GetBooleanSequenceControlProperties and GetTypedSequenceControlProperties in
core's model_config_utils.cc. "refused" and "loads" is what tritonserver 2.51 (24.10) did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tuner.modelconfig.ensembles import Mistake
from tuner.modelconfig.schema import ModelConfig

_SWITCHES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_TYPED = ("CONTROL_SEQUENCE_CORRID",)


def reshape_mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """A different number of elements than dims, in all or around an open dimension: refused.

    An empty shape is one element, and needs a model that batches.
    """
    for field in ("input", "output"):
        for index, tensor in enumerate(getattr(config, field)):
            if tensor.HasField("reshape") and tensor.dims:
                path = f"{field}[{index}].reshape"
                problem = _reshape(list(tensor.dims), list(tensor.reshape.shape), config)
                if problem:
                    dims, shape = list(tensor.dims), list(tensor.reshape.shape)
                    text = f"{field} {tensor.name} has dims {dims}, reshaped to {shape}: {problem}"
                    yield (
                        path,
                        text,
                        "give both as many elements, also between one -1 and the next",
                    )


def _reshape(dims: list[int], shape: list[int], config: ModelConfig) -> str:
    wrong = [dim for dim in shape if dim < 1 and dim != -1]
    if wrong:
        return f"{wrong[0]} is not a dimension"
    if not shape and config.max_batch_size == 0:
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
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for index, batch in enumerate(config.batch_input):
        path = f"batch_input[{index}]"
        yield from _sources(path, batch, inputs)
        if not batch.data_type:
            yield path, "a batch_input has no data_type", "TYPE_FP32 or TYPE_INT32"
    for index, batch_output in enumerate(config.batch_output):
        path = f"batch_output[{index}]"
        yield from _sources(path, batch_output, inputs)
        if not batch_output.target_name:
            text = "a batch_output has no target_name, which ends tritonserver"
            yield path, text, "name the outputs it is for"
        for name in batch_output.target_name if outputs else ():
            if name not in outputs:
                yield path, f"there is no output {name!r}", f"it has {', '.join(sorted(outputs))}"


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
        return
    if len(given) != 1:
        found = " and ".join(given) or "none"
        text = f"{kind} of {name} needs one of {', '.join(_SWITCHES)}; it has {found}"
        yield path, text, "int32_false_true: [ 0, 1 ]"
    elif len(getattr(control, given[0])) != 2:
        text = f"{given[0]} of {name} has two values, for false and for true"
        yield path, text, f"{given[0]}: [ 0, 1 ]"
