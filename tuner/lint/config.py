"""A model's config: Triton's rules, and settings that load but are seldom intended."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from tuner.lint.finding import Finding, Severity
from tuner.modelconfig.backends import Mistake, backend_of, is_ensemble
from tuner.modelconfig.base import turns_on_batching
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.idle import without_effect
from tuner.modelconfig.rules import Check, Rule, is_delay, queue_policies, violations
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.tree import locate

#: How the server will be started is not known here, so these may be right.
_DEPENDS_ON_SERVER = (Rule.CACHE_FLAG, Rule.HOST_POLICY, Rule.RATE_LIMIT)
_CONTINUOUS = ("vllm", "tensorrtllm")
#: Nobody holds requests back so long to fill a batch.
_LONG_DELAY_US = 100_000
_CLASS_SCORES = ("logit", "prob", "score", "label", "class")


def config_findings(
    files: ModelFiles, config: ModelConfig, *, has_state: bool = False
) -> Iterator[Finding]:
    """Findings with their place in the file; ``has_state``: the model's code knows sequences."""
    named = deepcopy(config)
    if not is_ensemble(config):
        named.backend = files.backend(config)
    for severity, rule, (path, message, hint) in _remarks(named, files.completes(config)):
        if has_state and rule == "stateless-sequences":
            continue
        line, column = locate(files.text, path)
        yield Finding(files.path, line, column, severity, rule, message, hint)


def _remarks(config: ModelConfig, completes: bool) -> Iterator[tuple[Severity, str, Mistake]]:
    for found in violations(config, completes=completes):
        yield Severity.ERROR, found.rule.value, (found.path, found.message, found.hint)
    for found in without_effect(config, completes=completes):
        severity = Severity.NOTE if found.rule in _DEPENDS_ON_SERVER else Severity.WARNING
        yield severity, found.rule.value, (found.path, found.message, found.hint)
    for severity, rule, check in _REMARKS:
        yield from ((severity, rule, mistake) for mistake in check(config))


def _preferred_sizes(config: ModelConfig) -> Iterator[Mistake]:
    """NVIDIA's batcher.md: "should not be used for most models"; TensorRT profiles excepted."""
    if config.dynamic_batching.preferred_batch_size and backend_of(config) != "tensorrt":
        text = "preferred_batch_size makes batches smaller than they could be"
        hint = "leave it out unless these sizes are much faster (TensorRT profiles)"
        yield "dynamic_batching.preferred_batch_size", text, hint


def _no_eviction(config: ModelConfig) -> Iterator[Mistake]:
    """default_timeout_microseconds and max_queue_size are 0, no limit, by default.

    Reported where somebody may have mistaken the delay for the limit.
    """
    long = config.dynamic_batching.max_queue_delay_microseconds >= _LONG_DELAY_US
    policies = [policy for _, policy in queue_policies(config)]
    if long and not any(p.default_timeout_microseconds or p.max_queue_size for p in policies):
        text = "queued requests are never evicted; max_queue_delay_microseconds does not evict them"
        hint = "set default_queue_policy { default_timeout_microseconds max_queue_size }"
        yield "dynamic_batching", text, hint


def _timeout_within_delay(config: ModelConfig) -> Iterator[Mistake]:
    """A lone request waits for the whole delay, and is rejected if it has timed out by then."""
    delay = config.dynamic_batching.max_queue_delay_microseconds
    for path, policy in queue_policies(config):
        timeout = policy.default_timeout_microseconds
        if 0 < timeout <= delay and not is_delay(policy):
            text = f"requests are rejected after {timeout} us and held back for up to {delay} us"
            hint = "make default_timeout_microseconds well above max_queue_delay_microseconds"
            yield path, text, hint


def _stateless_sequences(config: ModelConfig) -> Iterator[Mistake]:
    """Sequence batching is for stateful models; it has nothing to do with variable lengths.

    A Python model may keep its state by ``request.correlation_id()``, which no config shows.
    """
    batching = config.sequence_batching
    stateful = batching.iterative_sequence or batching.control_input or batching.state
    if config.HasField("sequence_batching") and not stateful:
        text = "no control_input and no state: only the correlation id tells sequences apart"
        hint = "keep it for a model that keeps state by that id; a stateless one needs no sequences"
        yield "sequence_batching", text, hint


def _batch_in_dims(config: ModelConfig) -> Iterator[Mistake]:
    """``dims`` leave the batch dimension out when max_batch_size is above 0."""
    for index, output in enumerate(config.output) if config.max_batch_size > 0 else ():
        scores = any(word in output.name.lower() for word in _CLASS_SCORES)
        if scores and len(output.dims) == 2 and output.dims[0] == -1 and output.dims[1] > 0:
            text = f"dims leave the batch out: each request gets {output.name} {list(output.dims)}"
            hint = f"write dims: [ {output.dims[1]} ] if there is one score vector a request"
            yield f"output[{index}].dims", text, hint


def _mixed_kinds(config: ModelConfig) -> Iterator[Mistake]:
    """Triton schedules all instances alike, however slow some are."""
    kinds = {group.Kind.Name(group.kind) for group in config.instance_group}
    if {"KIND_GPU", "KIND_CPU"} <= kinds:
        text = "CPU instances beside GPU instances are not a fallback: they serve an equal share"
        yield "instance_group", text, "keep one kind"


def _hidden_batcher(config: ModelConfig) -> Iterator[Mistake]:
    """A server that completes nothing would not load an ONNX model without inputs or outputs."""
    backend = backend_of(config)
    if config.max_batch_size and turns_on_batching(backend, config):
        tensorrt = "start with --disable-auto-complete-config"
        without = tensorrt if backend == "tensorrt" else "write all inputs and outputs to have none"
        text = f"{backend} turns dynamic batching on by itself when no scheduler is set"
        yield "max_batch_size", text, f"write dynamic_batching {{ }} to say so, or {without}"


def _tensorflow(config: ModelConfig) -> Iterator[Mistake]:
    if backend_of(config) == "tensorflow":
        yield "backend", "recent Triton releases have no TensorFlow backend", "export it to ONNX"


def _continuous(config: ModelConfig) -> Iterator[Mistake]:
    if config.backend in _CONTINUOUS and config.HasField("dynamic_batching"):
        text = f"{config.backend} batches by itself, token by token: dynamic_batching gains nothing"
        yield "dynamic_batching", text, "tune the backend's own parameters"


_REMARKS: tuple[tuple[Severity, str, Check], ...] = (
    (Severity.NOTE, "preferred-sizes-set", _preferred_sizes),
    (Severity.NOTE, "no-queue-timeout", _no_eviction),
    (Severity.WARNING, "timeout-within-delay", _timeout_within_delay),
    (Severity.NOTE, "stateless-sequences", _stateless_sequences),
    (Severity.NOTE, "batch-in-dims", _batch_in_dims),
    (Severity.WARNING, "mixed-kinds", _mixed_kinds),
    (Severity.NOTE, "hidden-batcher", _hidden_batcher),
    (Severity.WARNING, "tensorflow", _tensorflow),
    (Severity.NOTE, "continuous-batching", _continuous),
)
