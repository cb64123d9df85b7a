"""Triton's own rules for a model config, checked before a config reaches a server.

`violations` are reasons for which Triton refuses to load the model. Over its API it often says
no more than "failed to poll from model repository"; the reason is only in its log. What loads
but does nothing is in `tuner.lint.model_files`.

Rules are those of ValidateModelConfig, ValidateInstanceGroup and ValidateIOShape in
model_config_utils.cc of Triton's core. Each function says how tritonserver 2.51 (24.10)
answered when it was tried ("refused", "loads"), or "source" where it was only read.
Ensembles have theirs in `tuner.modelconfig.ensembles`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tuner.modelconfig import backends, ensembles, tensors
from tuner.modelconfig.backends import Mistake, backend_of, is_completed, is_tensorrt
from tuner.modelconfig.schema import ModelConfig, enum_name

#: Paths, messages and hints.
Check = Callable[[ModelConfig], Iterator[Mistake]]

_PROFILE = re.compile(r"\s*\+?\d")  # as C++'s stoi reads it


class Rule(Enum):
    """The rule that a violation breaks; the value is the id that reports show."""

    MAX_BATCH_SIZE = "max-batch-size"
    TENSOR = "tensor"
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
    return found_by(_REFUSALS if completes else _OF_A_WHOLE + _REFUSALS, config)


def found_by(checks: Sequence[tuple[Rule, Check]], config: ModelConfig) -> list[Violation]:
    """What a table of rules and their checks finds."""
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


def queue_policies(config: ModelConfig) -> Iterator[tuple[str, Any]]:
    """Path and `ModelQueuePolicy` of each queue policy of the dynamic batcher."""
    batching = config.dynamic_batching
    if batching.HasField("default_queue_policy"):
        yield "dynamic_batching.default_queue_policy", batching.default_queue_policy
    for level in sorted(batching.priority_queue_policy):
        policy = batching.priority_queue_policy[level]
        yield f"dynamic_batching.priority_queue_policy[{level}]", policy


def is_delay(policy: Any) -> bool:
    """Requests that time out are kept, behind all others, rather than rejected."""
    return bool(policy.TimeoutAction.Name(policy.timeout_action) == "DELAY")


#: For a config that nothing completes.
_OF_A_WHOLE = ((Rule.TENSOR, _unfinished_tensors),)
_REFUSALS: tuple[tuple[Rule, Check], ...] = (
    (Rule.MAX_BATCH_SIZE, _max_batch_size),
    (Rule.TENSOR, _dims),
    (Rule.PREFERRED_BATCH_SIZE, _preferred_sizes),
    (Rule.PRIORITY_LEVEL, _priority_levels),
    (Rule.PRESERVE_ORDERING, _preserve_ordering),
    (Rule.SLOT_UTILIZATION, _slot_utilization),
    (Rule.INSTANCE_GPUS, _gpus),
    (Rule.INSTANCE_PROFILE, _profiles),
    (Rule.RESPONSE_CACHE, _response_cache),
    (Rule.ENSEMBLE, ensembles.mistakes),
    (Rule.RESHAPE, tensors.reshape_mistakes),
    (Rule.CONTROL_INPUT, tensors.control_mistakes),
    (Rule.BATCH_INPUT, tensors.batch_io_mistakes),
    (Rule.TENSOR_FORMAT, tensors.format_mistakes),
    (Rule.WARMUP, tensors.warmup_mistakes),
    (Rule.BACKEND, backends.mistakes),
)
