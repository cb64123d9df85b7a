"""A model's config: Triton's rules, and settings that load but are seldom intended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.lint.finding import Finding, Severity
from tuner.modelconfig.base import turns_on_batching
from tuner.modelconfig.files import ModelFiles
from tuner.modelconfig.idle import without_effect
from tuner.modelconfig.rules import Rule, is_delay, queue_policies, violations
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.tree import locate

#: How the server will be started is not known here, so these may be right.
_DEPENDS_ON_SERVER = (Rule.CACHE_FLAG, Rule.HOST_POLICY, Rule.RATE_LIMIT)
_CONTINUOUS = ("vllm", "tensorrtllm")
#: Nobody holds requests back so long to fill a batch.
_LONG_DELAY_US = 100_000
_CLASS_SCORES = ("logit", "prob", "score", "label", "class")

#: severity, rule id, path of the field, message, hint
_Remark = tuple[Severity, str, str, str, str]


def config_findings(
    files: ModelFiles, config: ModelConfig, *, has_state: bool = False
) -> Iterator[Finding]:
    """Findings with their place in the file; ``has_state``: the model's code knows sequences."""
    remarks = [*_remarks(config, files.completes(config))]
    remarks += _hidden_batcher(config, files.backend(config))
    for severity, rule, path, message, hint in remarks:
        if has_state and rule == "stateless-sequences":
            continue
        line, column = locate(files.text, path)
        yield Finding(files.path, line, column, severity, rule, message, hint)


def _remarks(config: ModelConfig, completes: bool) -> Iterator[_Remark]:
    for found in violations(config, completes=completes):
        yield Severity.ERROR, found.rule.value, found.path, found.message, found.hint
    for found in without_effect(config, completes=completes):
        severity = Severity.NOTE if found.rule in _DEPENDS_ON_SERVER else Severity.WARNING
        yield severity, found.rule.value, found.path, found.message, found.hint
    for remark in _REMARKS:
        yield from remark(config)


def _preferred_sizes(config: ModelConfig) -> Iterator[_Remark]:
    """NVIDIA's batcher.md: "should not be used for most models"; TensorRT profiles excepted."""
    tensorrt = config.backend == "tensorrt" or config.platform == "tensorrt_plan"
    if config.dynamic_batching.preferred_batch_size and not tensorrt:
        yield (
            Severity.NOTE,
            "preferred-sizes-set",
            "dynamic_batching.preferred_batch_size",
            "preferred_batch_size makes batches smaller than they could be",
            "leave it out unless these sizes are much faster (TensorRT profiles)",
        )


def _no_eviction(config: ModelConfig) -> Iterator[_Remark]:
    """default_timeout_microseconds and max_queue_size are 0, no limit, by default.

    Reported where somebody may have mistaken the delay for the limit.
    """
    if config.dynamic_batching.max_queue_delay_microseconds < _LONG_DELAY_US:
        return
    policies = [policy for _, policy in queue_policies(config)]
    if not any(p.default_timeout_microseconds or p.max_queue_size for p in policies):
        yield (
            Severity.NOTE,
            "no-queue-timeout",
            "dynamic_batching",
            "queued requests are never evicted; max_queue_delay_microseconds does not evict them",
            "set default_queue_policy { default_timeout_microseconds max_queue_size }",
        )


def _timeout_within_delay(config: ModelConfig) -> Iterator[_Remark]:
    """A lone request waits for the whole delay, and is rejected if it has timed out by then."""
    delay = config.dynamic_batching.max_queue_delay_microseconds
    for path, policy in queue_policies(config):
        timeout = policy.default_timeout_microseconds
        if 0 < timeout <= delay and not is_delay(policy):
            yield (
                Severity.WARNING,
                "timeout-within-delay",
                path,
                f"requests are rejected after {timeout} us and held back for up to {delay} us",
                "make default_timeout_microseconds well above max_queue_delay_microseconds",
            )


def _stateless_sequences(config: ModelConfig) -> Iterator[_Remark]:
    """Sequence batching is for stateful models; it has nothing to do with variable lengths.

    A Python model may keep its state by ``request.correlation_id()``, which no config shows.
    """
    batching = config.sequence_batching
    if not config.HasField("sequence_batching") or batching.iterative_sequence:
        return
    if not batching.control_input and not batching.state:
        yield (
            Severity.NOTE,
            "stateless-sequences",
            "sequence_batching",
            "no control_input and no state: only the correlation id tells sequences apart",
            "keep it for a model that keeps state by that id; a stateless one needs no sequences",
        )


def _batch_in_dims(config: ModelConfig) -> Iterator[_Remark]:
    """``dims`` leave the batch dimension out when max_batch_size is above 0."""
    if config.max_batch_size < 1:
        return
    for index, output in enumerate(config.output):
        scores = any(word in output.name.lower() for word in _CLASS_SCORES)
        if scores and len(output.dims) == 2 and output.dims[0] == -1 and output.dims[1] > 0:
            yield (
                Severity.NOTE,
                "batch-in-dims",
                f"output[{index}].dims",
                f"dims leave the batch out: each request gets {output.name} {list(output.dims)}",
                f"write dims: [ {output.dims[1]} ] if there is one score vector a request",
            )


def _mixed_kinds(config: ModelConfig) -> Iterator[_Remark]:
    """Triton schedules all instances alike, however slow some are."""
    kinds = {group.Kind.Name(group.kind) for group in config.instance_group}
    if {"KIND_GPU", "KIND_CPU"} <= kinds:
        yield (
            Severity.WARNING,
            "mixed-kinds",
            "instance_group",
            "CPU instances beside GPU instances are not a fallback: they serve an equal share",
            "keep one kind",
        )


def _hidden_batcher(config: ModelConfig, backend: str) -> Iterator[_Remark]:
    """A server that completes nothing would not load an ONNX model without inputs or outputs."""
    if config.max_batch_size and turns_on_batching(backend, config):
        tensorrt = "start with --disable-auto-complete-config"
        without = tensorrt if backend == "tensorrt" else "write all inputs and outputs to have none"
        yield (
            Severity.NOTE,
            "hidden-batcher",
            "max_batch_size",
            f"{backend} turns dynamic batching on by itself when no scheduler is set",
            f"write dynamic_batching {{ }} to say so, or {without}",
        )


def _backends(config: ModelConfig) -> Iterator[_Remark]:
    if config.backend == "tensorflow" or config.platform.startswith("tensorflow_"):
        text = "recent Triton releases have no TensorFlow backend"
        yield Severity.WARNING, "tensorflow", "backend", text, "export the model to ONNX"
    if config.backend in _CONTINUOUS and config.HasField("dynamic_batching"):
        yield (
            Severity.NOTE,
            "continuous-batching",
            "dynamic_batching",
            f"{config.backend} batches by itself, token by token: dynamic_batching gains nothing",
            "tune the backend's own parameters",
        )


_REMARKS: tuple[Callable[[ModelConfig], Iterator[_Remark]], ...] = (
    _preferred_sizes,
    _no_eviction,
    _timeout_within_delay,
    _stateless_sequences,
    _batch_in_dims,
    _mixed_kinds,
    _backends,
)
