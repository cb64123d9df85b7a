"""Settings of a config that load, and then make batches other than they seem to.

What is known of them is from Triton's documents, model_config.proto and the backends' own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tuner.modelconfig.backends import Mistake, backend_of, is_ensemble
from tuner.modelconfig.lengths import INTEGERS, PICTURE, has_tokens
from tuner.modelconfig.message import PLACEHOLDERS
from tuner.modelconfig.queues import policy_of_queue, queue_policies
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.spec.paths import MAX_BATCH_SIZE

#: Parts of names of outputs that have as many scores as things were detected.
_DETECTED = ("box", "det", "landmark", "keypoint")
_CLASS_SCORES = ("logit", "prob", "score", "label", "class")
#: The text of a parameter that a script was to replace.
_PLACEHOLDER = re.compile(PLACEHOLDERS)
#: Its documents leave placeholders in a config: the backend takes each for a parameter left out.
_TAKES_PLACEHOLDERS = "tensorrtllm"


def batch_in_dims(config: ModelConfig) -> Iterator[Mistake]:
    """``dims`` leave the batch dimension out when max_batch_size is above 0.

    A first open dimension of scores may be that of an input, such as the frames of speech, or the
    number of boxes; of texts, whose scores are most often of the whole, that is asked.
    """
    if config.max_batch_size < 1:
        return
    measured = (t for t in config.input if enum_name(t, "data_type") not in INTEGERS)
    of_many = any(-1 in tensor.dims for tensor in measured)
    of_many |= any(word in out.name.lower() for out in config.output for word in _DETECTED)
    for index, output in enumerate(() if of_many else config.output):
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
    if has_tokens(tensor) and len(dims) == 2 and dims[0] == -1:
        return True
    return kind not in INTEGERS and len(dims) == PICTURE + 1 and dims[0] == -1


def fixed_batch(config: ModelConfig) -> Iterator[Mistake]:
    """A first 1 in every tensor of a model that is to take no batches; an ensemble has no file."""
    tensors = [*config.input, *config.output]
    fixed = all(len(tensor.dims) > 1 and tensor.dims[0] == 1 for tensor in tensors)
    if is_ensemble(config) or config.max_batch_size or not (config.input and config.output):
        return
    if fixed:
        by_code = backend_of(config) == "python"
        source, how = ("code", "take any") if by_code else ("file", "export the model with an open")
        text = f"every input and output begins with 1: a batch that the model's {source} fixes"
        hint = (
            f"{how} first dimension, leave it out of dims, and set max_batch_size: batches gain "
            "most"
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


def batches_of_one(config: ModelConfig) -> Iterator[Mistake]:
    """A preferred size of 1 is reached by each request, so that none waits (tried on 2.51)."""
    oldest = ("sequence_batching.oldest", config.sequence_batching.oldest)
    for place, batcher in (("dynamic_batching", config.dynamic_batching), oldest):
        sizes, delay = [*batcher.preferred_batch_size], batcher.max_queue_delay_microseconds
        if 1 in sizes and delay:
            text = (
                f"a preferred size of 1 is reached by each request: none waits the {delay:,} us "
                "for others"
            )
            hint = "leave 1 out to wait for a batch, or the delay to wait for none"
            yield f"{place}.preferred_batch_size", text, hint


def batcher_of_one(config: ModelConfig) -> Iterator[Mistake]:
    """A batch of one is full at once, so neither sizes nor a delay matter (source).

    Queue policies, priorities and the order of answers do.
    """
    batching = config.dynamic_batching
    orders = batching.preserve_ordering or policy_of_queue(config)
    if config.max_batch_size == 1 and config.HasField("dynamic_batching") and not orders:
        text = "dynamic_batching does nothing while max_batch_size is 1"
        yield "dynamic_batching", text, "raise max_batch_size if the model takes larger batches"


def placeholders(config: ModelConfig) -> Iterator[Mistake]:
    """Texts that a deployment's script was to replace: the model reads them as they are."""
    for key, parameter in sorted(config.parameters.items()):
        value = parameter.string_value
        if _PLACEHOLDER.fullmatch(value.strip()) and backend_of(config) != _TAKES_PLACEHOLDERS:
            text = f"{key} is still the placeholder {value!r}: Triton fills in none"
            yield f"parameters[{key}]", text, "fill the template in, or leave the parameter out"


#: Each with its rule of `tune lint`.
TRAPS: tuple[tuple[str, Callable[[ModelConfig], Iterator[Mistake]]], ...] = (
    ("batch-in-dims", batch_in_dims),
    ("fixed-batch", fixed_batch),
    ("short-queue", short_queue),
    ("padded-batches", padded_batches),
    ("batches-of-one", batches_of_one),
    ("batcher-without-batches", batcher_of_one),
    ("placeholder", placeholders),
)
