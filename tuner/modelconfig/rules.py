"""Triton's own rules for a model config, checked before a config reaches a server.

`violations` are reasons for which Triton refuses to load the model. Over its API it often says
no more than "failed to poll from model repository"; the reason is only in its log. What loads
but does nothing is in `tuner.lint.model_files`.

Rules are those of ValidateModelConfig, ValidateInstanceGroup, ValidateIOShape and those for
controls of sequences in model_config_utils.cc of Triton's core. Each function says how
tritonserver 2.51 (24.10) answered when it was tried ("refused", "loads"), or "source" where it was
only read. Ensembles have theirs in `tuner.modelconfig.ensembles`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from tuner.modelconfig import backends, ensembles, samples
from tuner.modelconfig.backends import Mistake, backend_of, is_completed, is_tensorrt, may_set_batch
from tuner.modelconfig.queues import is_delay, queue_policies
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.spec.mistakes import meant_or_listed

#: Paths, messages and hints.
Check = Callable[[ModelConfig], Iterator[Mistake]]

_PROFILE = re.compile(r"\s*\+?\d")  # as C++'s stoi reads it
_SWITCHES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRID_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
_TENSORRT_FLAGS = ("is_shape_tensor", "is_non_linear_format_io")
_BATCH_TYPES = ("TYPE_INT32", "TYPE_FP32")


class Rule(Enum):
    """The rule that a violation breaks; the value is the id that reports show."""

    MAX_BATCH_SIZE = "max-batch-size"
    TENSOR = "tensor"
    NO_VERSION = "no-version"
    PREFERRED_BATCH_SIZE = "preferred-batch-size"
    PRIORITY_LEVEL = "priority-level"
    PRESERVE_ORDERING = "preserve-ordering"
    SLOT_UTILIZATION = "slot-utilization"
    INSTANCE_GPUS = "instance-gpus"
    INSTANCE_PROFILE = "instance-profile"
    INSTANCE_COUNT = "instance-count"
    RESPONSE_CACHE = "response-cache"
    ENSEMBLE = "ensemble"
    ENSEMBLE_STEP = "ensemble-step"
    RESHAPE = "reshape"
    CONTROL_INPUT = "control-input"
    BATCH_INPUT = "batch-input"
    TENSOR_FORMAT = "tensor-format"
    WARMUP = "warmup"
    BACKEND = "backend"
    BATCHER_WITHOUT_BATCHES = "batcher-without-batches"
    CACHE_FLAG = "cache-flag"
    HOST_POLICY = "host-policy"
    RATE_LIMIT = "rate-limit"
    TIMEOUT_OVERRIDE = "timeout-override"
    SEQUENCE_DELAY = "sequence-delay"
    COMPLETED = "completed"
    TIMEOUT_WITHIN_DELAY = "timeout-within-delay"  # Triton loads it: only a search avoids it


@dataclass(frozen=True)
class Violation:
    """One rule that a config breaks.

    Attributes:
        owner: Name of the model whose field it is.
    """

    rule: Rule
    path: str
    message: str
    hint: str = ""
    owner: str = ""


def violations(config: ModelConfig, *, completes: bool = False) -> list[Violation]:
    """Why Triton would refuse ``config``; empty when none of its known rules is broken.

    Args:
        completes: Loading the model may fill in its tensors, as its own code does in Python
            (``auto_complete_config``).
    """
    return violations_of(_REFUSALS if completes else _COMPLETE + _REFUSALS, config)


def violations_of(checks: Sequence[tuple[Rule, Check]], config: ModelConfig) -> list[Violation]:
    return [Violation(rule, *mistake) for rule, check in checks for mistake in check(config)]


def _max_batch_size(config: ModelConfig) -> Iterator[Mistake]:
    """Below 0: refused."""
    if config.max_batch_size < 0:
        text = f"max_batch_size is {config.max_batch_size}"
        yield "max_batch_size", text, "use 0 for a model that takes no batches"


def _dims(config: ModelConfig) -> Iterator[Mistake]:
    """A dimension that is neither -1 nor 1 or more: refused."""
    for path, tensor in _named_tensors(config):
        wrong = [dim for dim in tensor.dims if dim < 1 and dim != -1]
        if wrong:
            text = f"{path.split('[')[0]} {tensor.name} has dimension {wrong[0]}"
            yield f"{path}.dims", text, "-1 is any length"


def _unfinished_tensors(config: ModelConfig) -> Iterator[Mistake]:
    """No name, type or dims: refused, unless the backend or the model's code fills them in.

    PyTorch's refuses a model without outputs, or without inputs that its code takes.
    """
    backend = backend_of(config)
    for path, tensor in () if is_completed(config, backend) else _named_tensors(config):
        missing = [f for f in ("name", "data_type", "dims") if not getattr(tensor, f)]
        if missing:
            kind, _, index = path.rstrip("]").partition("[")
            yield path, f"{kind} {tensor.name or index} has no {' and no '.join(missing)}", ""
    if backend == "pytorch" and config.runtime != "model.py":
        controls = config.sequence_batching.control_input or config.sequence_batching.state
        inputs = config.input or config.batch_input or controls
        for name, there in (("input", inputs), ("output", config.output)):
            if not there:
                text = f"a PyTorch model without {name}s: its backend completes none"
                yield name, text, f"write each {name} with its dims"


def _named_tensors(config: ModelConfig) -> Iterator[tuple[str, Any]]:
    for name in ("input", "output"):
        for index, tensor in enumerate(getattr(config, name)):
            yield f"{name}[{index}]", tensor


def _no_version(config: ModelConfig) -> Iterator[Mistake]:
    """A policy that chooses no version, whatever there are: refused."""
    policy = config.version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "latest" and not policy.latest.num_versions:
        yield "version_policy", "latest without num_versions serves none", "write num_versions: 1"
    elif kind == "specific" and not policy.specific.versions:
        yield "version_policy", "specific without versions serves none", "name versions"


def _preferred_sizes(config: ModelConfig) -> Iterator[Mistake]:
    """Above max_batch_size, or below 1, dynamic or sequence batching: refused."""
    places = {"dynamic_batching": config.dynamic_batching}
    places["sequence_batching.oldest"] = config.sequence_batching.oldest
    limit = config.max_batch_size
    for place, batcher in places.items():
        sizes, path = list(batcher.preferred_batch_size), f"{place}.preferred_batch_size"
        if sizes and max(sizes) > limit:
            text = f"preferred_batch_size {max(sizes)} is above max_batch_size {limit}"
            yield path, text, "raise max_batch_size or leave preferred_batch_size out"
        if sizes and min(sizes) <= 0:
            yield path, f"preferred_batch_size {min(sizes)} is not positive", ""


def _priority_levels(config: ModelConfig) -> Iterator[Mistake]:
    """default_priority_level, or a policy's key, outside 1..priority_levels: refused."""
    batching = config.dynamic_batching
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        text = f"default_priority_level is {default}, but there are {levels} priority_levels"
        hint = f"set default_priority_level to one of 1 to {levels}"
        yield "dynamic_batching.default_priority_level", text, hint
    for level in sorted(batching.priority_queue_policy) if levels else ():
        if not 1 <= level <= levels:
            text = f"priority_queue_policy has a policy for level {level} of {levels}"
            path = f"dynamic_batching.priority_queue_policy[{level}]"
            yield path, text, f"its keys are levels, 1 to {levels}"


def _preserve_ordering(config: ModelConfig) -> Iterator[Mistake]:
    """Refuses it with several priority levels, or with a timeout that delays.

    timeout_action DELAY without any timeout loads.
    """
    batching = config.dynamic_batching
    if not batching.preserve_ordering:
        return
    if batching.priority_levels > 1:
        text = f"preserve_ordering allows one priority level, not {batching.priority_levels}"
        yield "dynamic_batching.preserve_ordering", text, ""
    for path, policy in queue_policies(config):
        if is_delay(policy) and policy.default_timeout_microseconds:
            text = "preserve_ordering excludes timeout_action DELAY"
            yield f"{path}.timeout_action", text, "use timeout_action REJECT"


def _slot_utilization(config: ModelConfig) -> Iterator[Mistake]:
    """Outside 0..1: refused."""
    share = config.sequence_batching.direct.minimum_slot_utilization
    if not 0 <= share <= 1:
        path = "sequence_batching.direct.minimum_slot_utilization"
        yield path, f"minimum_slot_utilization is {share:g}, but must be between 0 and 1", ""


def _gpus(config: ModelConfig) -> Iterator[Mistake]:
    """GPUs with KIND_CPU or KIND_MODEL, or a negative one: refused.

    So are KIND_GPU, and KIND_AUTO with GPUs listed, on a machine that lacks the GPU; what GPUs
    there are is not known here.
    """
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}].gpus"
        if group.gpus and (kind := enum_name(group, "kind")) in ("KIND_CPU", "KIND_MODEL"):
            text = f"{kind} instances cannot have gpus {list(group.gpus)}"
            yield path, text, "remove gpus, or use KIND_GPU"
        if negative := [gpu for gpu in group.gpus if gpu < 0]:
            yield path, f"there is no GPU {negative[0]}", "the first one is 0"


def _profiles(config: ModelConfig) -> Iterator[Mistake]:
    """Refuses profiles of other backends than TensorRT, and what is no number from 0."""
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}].profile"
        if group.profile and not is_tensorrt(config):
            yield path, "optimization profiles are for TensorRT models only", ""
        elif wrong := [name for name in group.profile if not _PROFILE.match(name)]:
            yield path, f"there is no optimization profile {wrong[0]!r}", "the first one is 0"


def _response_cache(config: ModelConfig) -> Iterator[Mistake]:
    """Refuses the cache with sequence batching or a decoupled model."""
    sequences = config.HasField("sequence_batching")
    blocked = sequences or config.model_transaction_policy.decoupled
    if config.response_cache.enable and blocked:
        blocker = "sequence batching" if sequences else "a decoupled model"
        text = f"the response cache does not work with {blocker}"
        yield "response_cache.enable", text, "turn it off"


def _reshapes(config: ModelConfig) -> Iterator[Mistake]:
    """A different number of elements than dims, in all or around an open dimension: refused.

    An empty shape is one element, and needs a model that batches.
    """
    for path, tensor in _named_tensors(config):
        if not tensor.HasField("reshape") or not tensor.dims:
            continue
        dims, shape, field = list(tensor.dims), list(tensor.reshape.shape), path.split("[")[0]
        if problem := _reshape_problem(dims, shape, config):
            text = f"{field} {tensor.name} has dims {dims}, reshaped to {shape}: {problem}"
            hint = "give both as many elements, also between one -1 and the next"
            yield f"{path}.reshape", text, hint


def _reshape_problem(dims: list[int], shape: list[int], config: ModelConfig) -> str:
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


def _batch_tensors(config: ModelConfig) -> Iterator[Mistake]:
    """Sources and types of batch_input, sources and targets of batch_output: refused.

    A batch_output without a target does not only fail its model: it ends the server.
    """
    if not config.batch_input and not config.batch_output:
        return
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for index, batch in enumerate(config.batch_input):
        path = f"batch_input[{index}]"
        yield from _batch_sources(path, batch, inputs)
        if (given := enum_name(batch, "data_type")) not in _BATCH_TYPES:
            yield path, f"a batch_input has data_type {given}", " or ".join(_BATCH_TYPES)
    for index, batch_output in enumerate(config.batch_output):
        path = f"batch_output[{index}]"
        yield from _batch_sources(path, batch_output, inputs)
        if not batch_output.target_name:
            text = "a batch_output has no target_name, which ends tritonserver"
            yield path, text, "name the outputs it is for"
        targets = list(batch_output.target_name)
        for name in dict.fromkeys(targets):
            if outputs and name not in outputs:
                yield path, f"there is no output {name!r}", meant_or_listed(name, sorted(outputs))
            if targets.count(name) > 1:
                yield path, f"target {name!r} is named more than once", "name it once"


def _batch_sources(path: str, batch: Any, inputs: set[str]) -> Iterator[Mistake]:
    sources = list(batch.source_input)
    if len(sources) != 1:
        kind = batch.Kind.Name(batch.kind)
        yield path, f"{kind} has {len(sources)} source_inputs", "give it one"
    elif inputs and sources[0] not in inputs:
        yield path, f"there is no input {sources[0]!r}", meant_or_listed(sources[0], sorted(inputs))


def _controls(config: ModelConfig) -> Iterator[Mistake]:
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
            yield from _control_values(path, tensor.name, kind, control)


def _control_values(path: str, name: str, kind: str, control: Any) -> Iterator[Mistake]:
    given = [switch for switch in _SWITCHES if getattr(control, switch)]
    if kind == "CONTROL_SEQUENCE_CORRID":
        if given:
            yield path, f"{kind} of {name} has a data_type, and no {given[0]}", f"drop {given[0]}"
        if (data_type := enum_name(control, "data_type")) not in _CORRID_TYPES:
            yield path, f"{kind} of {name} has data_type {data_type}", " or ".join(_CORRID_TYPES)
        return
    if len(given) != 1:
        given_words = " and ".join(given) or "none"
        text = f"{kind} of {name} needs one of {', '.join(_SWITCHES)}; it has {given_words}"
        yield path, text, "int32_false_true: [ 0, 1 ]"
    elif len(getattr(control, given[0])) != 2:
        text = f"{given[0]} of {name} has two values, for false and for true"
        yield path, text, f"{given[0]}: [ 0, 1 ]"


def _formats(config: ModelConfig) -> Iterator[Mistake]:
    """Shape tensors and formats that do not fit the backend or the number of dims: refused."""
    for path, tensor in _named_tensors(config):
        for flag in _TENSORRT_FLAGS:
            if getattr(tensor, flag) and not is_tensorrt(config):
                yield f"{path}.{flag}", f"{flag} is for TensorRT models only", "leave it out"
        field = path.split("[")[0]
        images = field == "input" and tensor.format
        if (images or tensor.is_non_linear_format_io) and tensor.dims and len(tensor.dims) != 3:
            what = enum_name(tensor, "format") if images else _TENSORRT_FLAGS[1]
            text = f"{what} needs 3 dims, and {field} {tensor.name} has {len(tensor.dims)}"
            yield f"{path}.dims", text, "dims leave the batch out"


#: For a config that nothing completes.
_COMPLETE = (
    (Rule.TENSOR, _unfinished_tensors),
    (Rule.WARMUP, samples.mistakes_without_batches),
)
_REFUSALS: tuple[tuple[Rule, Check], ...] = (
    (Rule.MAX_BATCH_SIZE, _max_batch_size),
    (Rule.TENSOR, _dims),
    (Rule.NO_VERSION, _no_version),
    (Rule.PREFERRED_BATCH_SIZE, _preferred_sizes),
    (Rule.PRIORITY_LEVEL, _priority_levels),
    (Rule.PRESERVE_ORDERING, _preserve_ordering),
    (Rule.SLOT_UTILIZATION, _slot_utilization),
    (Rule.INSTANCE_GPUS, _gpus),
    (Rule.INSTANCE_PROFILE, _profiles),
    (Rule.RESPONSE_CACHE, _response_cache),
    (Rule.ENSEMBLE, ensembles.mistakes),
    (Rule.RESHAPE, _reshapes),
    (Rule.CONTROL_INPUT, _controls),
    (Rule.BATCH_INPUT, _batch_tensors),
    (Rule.TENSOR_FORMAT, _formats),
    (Rule.WARMUP, samples.mistakes),
    (Rule.BACKEND, backends.mistakes),
)
