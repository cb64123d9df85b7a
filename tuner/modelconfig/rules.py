"""Triton's own rules for a model config, checked before a config reaches a server.

`violations` are reasons for which Triton refuses to load the model. Over its API it often says
no more than "failed to poll from model repository"; the reason is only in its log. What loads
but does nothing is in `tuner.modelconfig.idle`.

Rules are those of ValidateModelConfig, ValidateInstanceGroup and ValidateIOShape in
model_config_utils.cc of Triton's core. Each function says how tritonserver 2.51 (24.10)
answered when it was tried ("refused", "loads"), or "source" where it was only read.
Ensembles have theirs in `tuner.modelconfig.ensembles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tuner.modelconfig import ensembles, tensors
from tuner.modelconfig.schema import ModelConfig

#: Backends that complete no config by themselves (a Python model's own code may). Others read the
#: model's file, or may do so: DALI and FasterTransformer take tensors without types and dims.
_NOT_COMPLETED_BACKENDS = ("python", "pytorch")


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
        path: The field that breaks it, as in `tuner.modelconfig.path`.
        message: What is wrong.
        hint: What to do.
        owner: Label of the model whose field it is; empty if there is only one model.
    """

    rule: Rule
    path: str
    message: str
    hint: str = ""
    owner: str = ""


def violations(config: ModelConfig, *, completes: bool = False) -> list[Violation]:
    """Why Triton would refuse ``config``; empty when none of its known rules is broken.

    Args:
        config: As asked for, or as completed by the server.
        completes: Loading the model may fill in its tensors, as its own code does in Python
            (``auto_complete_config``).
    """
    found = [found for rule in _REFUSALS for found in rule(config)]
    return found if completes else [*_unfinished_tensors(config), *found]


def _max_batch_size(config: ModelConfig) -> Iterator[Violation]:
    """Below 0: refused."""
    if config.max_batch_size < 0:
        yield Violation(
            Rule.MAX_BATCH_SIZE,
            "max_batch_size",
            f"max_batch_size is {config.max_batch_size}",
            "use 0 for a model that takes no batches",
        )


def _tensors(config: ModelConfig) -> Iterator[Violation]:
    """A dimension that is neither -1 nor 1 or more: refused."""
    for path, tensor in _named_tensors(config):
        wrong = [dim for dim in tensor.dims if dim < 1 and dim != -1]
        if wrong:
            text = f"{path.split('[')[0]} {tensor.name} has dimension {wrong[0]}"
            yield Violation(Rule.TENSOR, f"{path}.dims", text, "-1 is any length")


def _unfinished_tensors(config: ModelConfig) -> Iterator[Violation]:
    """No name, type or dims: refused, unless the backend or the model's code fills them in."""
    for path, tensor in () if is_completed(config) else _named_tensors(config):
        missing = [f for f in ("name", "data_type", "dims") if not getattr(tensor, f)]
        if missing:
            kind, _, index = path.rstrip("]").partition("[")
            text = f"{kind} {tensor.name or index} has no {' and no '.join(missing)}"
            yield Violation(Rule.TENSOR, path, text)


def _named_tensors(config: ModelConfig) -> Iterator[tuple[str, Any]]:
    for name in ("input", "output"):
        for index, tensor in enumerate(getattr(config, name)):
            yield f"{name}[{index}]", tensor


def _preferred_sizes(config: ModelConfig) -> Iterator[Violation]:
    """Above max_batch_size, or below 1, dynamic or sequence batching: refused."""
    places = {"dynamic_batching": config.dynamic_batching}
    places["sequence_batching.oldest"] = config.sequence_batching.oldest
    for place, batcher in places.items():
        path = f"{place}.preferred_batch_size"
        sizes = list(batcher.preferred_batch_size)
        limit = config.max_batch_size
        if any(size > limit for size in sizes):
            yield Violation(
                Rule.PREFERRED_BATCH_SIZE,
                path,
                f"preferred_batch_size {max(sizes)} is above max_batch_size {limit}",
                "raise max_batch_size or leave preferred_batch_size out",
            )
        if any(size <= 0 for size in sizes):
            text = f"preferred_batch_size {min(sizes)} is not positive"
            yield Violation(Rule.PREFERRED_BATCH_SIZE, path, text)


def _priority_levels(config: ModelConfig) -> Iterator[Violation]:
    """default_priority_level, or a policy's key, outside 1..priority_levels: refused."""
    batching = config.dynamic_batching
    levels = batching.priority_levels
    if not levels:
        return
    if not 1 <= batching.default_priority_level <= levels:
        yield Violation(
            Rule.PRIORITY_LEVEL,
            "dynamic_batching.default_priority_level",
            f"default_priority_level is {batching.default_priority_level}, "
            f"but there are {levels} priority_levels",
            f"set default_priority_level to one of 1 to {levels}",
        )
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            yield Violation(
                Rule.PRIORITY_LEVEL,
                f"dynamic_batching.priority_queue_policy[{level}]",
                f"priority_queue_policy has a policy for level {level} of {levels}",
                f"its keys are levels, 1 to {levels}",
            )


def _preserve_ordering(config: ModelConfig) -> Iterator[Violation]:
    """With several priority levels, or with a timeout that delays: refused.

    timeout_action DELAY without any timeout loads.
    """
    batching = config.dynamic_batching
    if not batching.preserve_ordering:
        return
    path = "dynamic_batching.preserve_ordering"
    if batching.priority_levels > 1:
        text = f"preserve_ordering allows one priority level, not {batching.priority_levels}"
        yield Violation(Rule.PRESERVE_ORDERING, path, text)
    for policy_path, policy in queue_policies(config):
        if is_delay(policy) and policy.default_timeout_microseconds:
            yield Violation(
                Rule.PRESERVE_ORDERING,
                f"{policy_path}.timeout_action",
                "preserve_ordering excludes timeout_action DELAY",
                "use timeout_action REJECT",
            )


def _slot_utilization(config: ModelConfig) -> Iterator[Violation]:
    """Outside 0..1: refused."""
    share = config.sequence_batching.direct.minimum_slot_utilization
    if not 0 <= share <= 1:
        path = "sequence_batching.direct.minimum_slot_utilization"
        text = f"minimum_slot_utilization is {share:g}, but must be between 0 and 1"
        yield Violation(Rule.SLOT_UTILIZATION, path, text)


def _instance_groups(config: ModelConfig) -> Iterator[Violation]:
    """GPUs with KIND_CPU or KIND_MODEL, a negative one, profiles of all but TensorRT: refused.

    So are KIND_GPU, and KIND_AUTO with GPUs listed, on a machine that lacks the GPU; what GPUs
    there are is not known here.
    """
    named = {config.backend, config.platform} - {""}
    tensorrt = not named or named & {"tensorrt", "tensorrt_plan"}  # unnamed: by the model's file
    for index, group in enumerate(config.instance_group):
        path = f"instance_group[{index}]"
        kind = group.Kind.Name(group.kind)
        if group.gpus and kind in ("KIND_CPU", "KIND_MODEL"):
            yield Violation(
                Rule.INSTANCE_GPUS,
                f"{path}.gpus",
                f"{kind} instances cannot have gpus {list(group.gpus)}",
                "remove gpus, or use KIND_GPU",
            )
        if negative := [gpu for gpu in group.gpus if gpu < 0]:
            text = f"there is no GPU {negative[0]}"
            yield Violation(Rule.INSTANCE_GPUS, f"{path}.gpus", text, "the first one is 0")
        if group.profile and not tensorrt:
            text = "optimization profiles are for TensorRT models only"
            yield Violation(Rule.INSTANCE_PROFILE, f"{path}.profile", text)


def _response_cache(config: ModelConfig) -> Iterator[Violation]:
    """With sequence batching or a decoupled model: refused."""
    if not config.response_cache.enable:
        return
    sequences = config.HasField("sequence_batching")
    if sequences or config.model_transaction_policy.decoupled:
        blocker = "sequence batching" if sequences else "a decoupled model"
        text = f"the response cache does not work with {blocker}"
        yield Violation(Rule.RESPONSE_CACHE, "response_cache.enable", text, "turn it off")


def _from_elsewhere(config: ModelConfig) -> Iterator[Violation]:
    """Rules of `tuner.modelconfig.ensembles` and `tuner.modelconfig.tensors`: refused."""
    for rule, mistakes in _ELSEWHERE.items():
        for path, message, hint in mistakes(config):
            yield Violation(rule, path, message, hint)


_ELSEWHERE = {
    Rule.ENSEMBLE: ensembles.mistakes,
    Rule.RESHAPE: tensors.reshape_mistakes,
    Rule.CONTROL_INPUT: tensors.control_mistakes,
    Rule.BATCH_INPUT: tensors.batch_io_mistakes,
}


def queue_policies(config: ModelConfig) -> Iterator[tuple[str, Any]]:
    """Path and `ModelQueuePolicy` of each queue policy of the dynamic batcher."""
    batching = config.dynamic_batching
    if batching.HasField("default_queue_policy"):
        yield "dynamic_batching.default_queue_policy", batching.default_queue_policy
    for level in sorted(batching.priority_queue_policy):
        policy = batching.priority_queue_policy[level]
        yield f"dynamic_batching.priority_queue_policy[{level}]", policy


def is_completed(config: ModelConfig) -> bool:
    """The backend, known or unknown, may fill in what the config leaves out."""
    return not ensembles.is_ensemble(config) and config.backend not in _NOT_COMPLETED_BACKENDS


def is_delay(policy: Any) -> bool:
    """Requests that time out are kept, behind all others, rather than rejected."""
    return bool(policy.TimeoutAction.Name(policy.timeout_action) == "DELAY")


_Check = Callable[[ModelConfig], Iterator[Violation]]

_REFUSALS: tuple[_Check, ...] = (
    _max_batch_size,
    _tensors,
    _preferred_sizes,
    _priority_levels,
    _preserve_ordering,
    _slot_utilization,
    _instance_groups,
    _response_cache,
    _from_elsewhere,
)
