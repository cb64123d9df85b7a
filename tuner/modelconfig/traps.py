"""Settings of a config that load, and then make batches other than they seem to.

What is known of them is from Triton's documents, model_config.proto and the backends' own.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.modelconfig.backends import Mistake, backend_of
from tuner.modelconfig.queues import queue_policies
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.spec.paths import MAX_BATCH_SIZE

_CLASS_SCORES = ("logit", "prob", "score", "label", "class")
#: Parts of names of what a model of texts takes: two dimensions, the batch and the tokens.
_TOKENS = ("input_id", "attention_mask", "token_type", "position_id", "segment_id", "input_mask")
_INTEGERS = ("TYPE_INT32", "TYPE_INT64")
#: Dimensions of a picture without its batch.
_PICTURE = 3


def batch_in_dims(config: ModelConfig) -> Iterator[Mistake]:
    """``dims`` leave the batch dimension out when max_batch_size is above 0."""
    if config.max_batch_size < 1:
        return
    for index, output in enumerate(config.output):
        scores = any(word in output.name.lower() for word in _CLASS_SCORES)
        if scores and len(output.dims) == 2 and output.dims[0] == -1 and output.dims[1] > 0:
            text = f"dims leave the batch out: each request gets {output.name} {list(output.dims)}"
            hint = f"write dims: [ {output.dims[1]} ] if there is one score vector a request"
            yield f"output[{index}].dims", text, hint
    for index, tensor in enumerate(config.input):
        if _holds_batch(tensor):
            rest = ", ".join(map(str, tensor.dims[1:]))
            text = (
                f"dims leave the batch out, since max_batch_size is {config.max_batch_size}: each "
                f"row of {tensor.name} would be {[*tensor.dims]}"
            )
            hint = f"write dims: [ {rest} ], and so in the others, if the first is the batch"
            yield f"input[{index}].dims", text, hint
            return  # of one input enough is said


def _holds_batch(tensor: ModelConfig) -> bool:
    """Whether the first dimension is probably the batch once more."""
    dims, kind = [*tensor.dims], enum_name(tensor, "data_type")
    tokens = kind in _INTEGERS and any(word in tensor.name.lower() for word in _TOKENS)
    if tokens and len(dims) == 2 and dims[0] == -1:
        return True
    return kind not in _INTEGERS and len(dims) == _PICTURE + 1 and dims[0] == -1


def fixed_batch(config: ModelConfig) -> Iterator[Mistake]:
    """A first 1 in every tensor of a model that is to take no batches."""
    tensors = [*config.input, *config.output]
    fixed = all(len(tensor.dims) > 1 and tensor.dims[0] == 1 for tensor in tensors)
    if config.max_batch_size == 0 and config.input and config.output and fixed:
        text = "every input and output begins with 1: a batch that the model's file fixes"
        hint = (
            "export the model with an open first dimension, leave it out of dims, and set "
            "max_batch_size: batches gain most"
        )
        yield "input[0].dims", text, hint


def short_queue(config: ModelConfig) -> Iterator[Mistake]:
    """A queue that holds fewer requests than a batch that is waited for."""
    batching = config.dynamic_batching
    largest = max(batching.preferred_batch_size, default=config.max_batch_size)
    waits = bool(batching.preferred_batch_size or batching.max_queue_delay_microseconds)
    for path, policy in queue_policies(config):
        if waits and 0 < policy.max_queue_size < largest:
            text = (
                f"at most {policy.max_queue_size} requests wait, so no batch of {largest} forms "
                "from requests of one row, and what comes meanwhile is refused"
            )
            hint = f"make max_queue_size {2 * largest} or more, or prefer smaller batches"
            yield f"{path}.max_queue_size", text, hint


def padded_batches(config: ModelConfig) -> Iterator[Mistake]:
    """OpenVINO pads each call to max_batch_size (openvino_backend, README)."""
    key = "ENABLE_BATCH_PADDING"
    padded = key in config.parameters and config.parameters[key].string_value.lower() == "yes"
    if backend_of(config) == "openvino" and padded and config.max_batch_size > 1:
        text = (
            f"each call is padded to max_batch_size: a lone request costs {config.max_batch_size} "
            "rows"
        )
        yield f"parameters[{key}]", text, f"search small values of {MAX_BATCH_SIZE}"
