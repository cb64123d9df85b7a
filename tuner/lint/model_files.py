"""What the config of one model shows.

Triton's rules, settings that load but do nothing (a search over them measures noise), and settings
that are seldom intended.
Each function about a setting without effect says how tritonserver 2.51 (24.10) answered when it was
tried ("loads"), or "source" where it was only read.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from tuner.lint.rules import LintFinding, Severity
from tuner.modelconfig.backends import (
    Mistake,
    backend_of,
    is_completed,
    is_ensemble,
    last_release,
    refused_in_names,
)
from tuner.modelconfig.base import inputs_of_any_length, turns_on_batching
from tuner.modelconfig.files import (
    ModelFiles,
)
from tuner.modelconfig.flags import FLAGGED
from tuner.modelconfig.keys import ignored_threads, unread_keys, values_amiss
from tuner.modelconfig.queues import (
    IDLE_WAIT_US,
    policy_of_queue,
    queue_policies,
    timeouts_within_delay,
)
from tuner.modelconfig.rules import Check, Rule, Violation, violations, violations_of
from tuner.modelconfig.samples import skipped
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.spanning import spanning_mistakes
from tuner.modelconfig.traps import TRAPS
from tuner.modelconfig.tree import locate
from tuner.spec.paths import PREFERRED


def without_effect(config: ModelConfig, *, completes: bool = False) -> list[Violation]:
    """Settings that load and then do nothing, alone or on a server without further arguments.

    Args:
        completes: As in `violations`; max_batch_size may be filled in too.
    """
    return violations_of(_IDLE if completes else _COMPLETE + _IDLE, config)


def _batcher_without_batches(config: ModelConfig) -> Iterator[Mistake]:
    """dynamic_batching with max_batch_size 0: loads, and every batch is one request."""
    batches = config.max_batch_size or is_completed(config)
    if config.HasField("dynamic_batching") and not batches:
        text = "dynamic_batching forms no batches while max_batch_size is 0"
        yield "dynamic_batching", text, "set max_batch_size to 1 or more"


def _instance_count(config: ModelConfig) -> Iterator[Mistake]:
    """Below 0: loads, with Triton's default count."""
    for index, group in enumerate(config.instance_group):
        if group.count < 0:
            text = f"instance count {group.count} is read as unset"
            yield f"instance_group[{index}].count", text, ""


def _policies_without_levels(config: ModelConfig) -> Iterator[Mistake]:
    """priority_queue_policy without priority_levels: loads; the policies are unused (source)."""
    batching = config.dynamic_batching
    if batching.priority_queue_policy and not batching.priority_levels:
        text = "priority_queue_policy does nothing without priority_levels"
        hint = "set priority_levels and default_priority_level"
        yield "dynamic_batching.priority_queue_policy", text, hint


def _timeout_override(config: ModelConfig) -> Iterator[Mistake]:
    """allow_timeout_override without a default timeout (PolicyQueue::Enqueue, source)."""
    for path, policy in queue_policies(config):
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            text = (
                "allow_timeout_override does nothing without default_timeout_microseconds: "
                "a request may only shorten the default"
            )
            yield f"{path}.allow_timeout_override", text, "set default_timeout_microseconds"


def _sequence_delay(config: ModelConfig) -> Iterator[Mistake]:
    """Direct strategy: the delay counts only with minimum_slot_utilization (model_config.proto)."""
    direct = config.sequence_batching.direct
    if direct.max_queue_delay_microseconds and not direct.minimum_slot_utilization:
        path = "sequence_batching.direct.max_queue_delay_microseconds"
        yield path, "max_queue_delay_microseconds does nothing without minimum_slot_utilization", ""


#: For a config that nothing completes.
_COMPLETE = ((Rule.BATCHER_WITHOUT_BATCHES, _batcher_without_batches),)
_IDLE: tuple[tuple[Rule, Check], ...] = (
    (Rule.INSTANCE_COUNT, _instance_count),
    (Rule.PRIORITY_LEVEL, _policies_without_levels),
    (Rule.TIMEOUT_OVERRIDE, _timeout_override),
    (Rule.SEQUENCE_DELAY, _sequence_delay),
    (Rule.WARMUP, skipped),
    *((flagged.rule, flagged.check) for flagged in FLAGGED),
)


#: How the server will be started is not known here, so these may be right.
_DEPENDS_ON_SERVER = tuple(flagged.rule for flagged in FLAGGED)
_CONTINUOUS = ("vllm", "tensorrtllm")
#: Nobody holds requests back so long to fill a batch.
_LONG_DELAY_US = 100_000
_IDLE_WAIT = f"up to {IDLE_WAIT_US / 1e6:g} s beside an idle instance"
_WEARS_OUT = "wears the batcher out in minutes, on servers before core#509 (server#8870)"


def config_findings(
    files: ModelFiles, config: ModelConfig, *, has_state: bool = False
) -> Iterator[LintFinding]:
    """Findings with their place in the file; ``has_state``: the model's code knows sequences."""
    named = deepcopy(config)
    named.name = files.model
    if not is_ensemble(config):
        named.backend = files.backend(config)
    for severity, rule, (path, message, hint) in _remarks(named, files.completes(config)):
        if has_state and rule == "stateless-sequences":
            continue
        line, column = locate(files.text, path)
        yield LintFinding(files.path, line, column, severity, rule, message, hint)


def _remarks(config: ModelConfig, completes: bool) -> Iterator[tuple[Severity, str, Mistake]]:
    for violation in violations(config, completes=completes):
        yield (
            Severity.ERROR,
            violation.rule.value,
            (violation.path, violation.message, violation.hint),
        )
    for violation in without_effect(config, completes=completes):
        severity = Severity.NOTE if violation.rule in _DEPENDS_ON_SERVER else Severity.WARNING
        yield severity, violation.rule.value, (violation.path, violation.message, violation.hint)
    for severity, rule, check in _REMARKS:
        yield from ((severity, rule, mistake) for mistake in check(config))


def _preferred_sizes(config: ModelConfig) -> Iterator[Mistake]:
    """NVIDIA's batcher.md: "should not be used for most models"; TensorRT profiles excepted."""
    if config.dynamic_batching.preferred_batch_size and backend_of(config) != "tensorrt":
        text = "preferred_batch_size makes batches smaller than they could be"
        hint = "leave it out unless these sizes are much faster (TensorRT profiles)"
        yield PREFERRED, text, hint


def _no_eviction(config: ModelConfig) -> Iterator[Mistake]:
    """default_timeout_microseconds and max_queue_size are 0, no limit, by default.

    Reported where somebody may have mistaken the delay for the limit.
    """
    long = config.dynamic_batching.max_queue_delay_microseconds >= _LONG_DELAY_US
    policies = [policy for _, policy in queue_policies(config)]
    if long and not any(p.default_timeout_microseconds or p.max_queue_size for p in policies):
        text = "queued requests are never evicted; max_queue_delay_microseconds does not evict them"
        hint = "limit requests in front of Triton; default_queue_policy does too, but"
        costs = f"requests may then wait {_IDLE_WAIT}, and a timeout beside a delay {_WEARS_OUT}"
        yield "dynamic_batching", text, f"{hint} {costs}"


def _idle_wait(config: ModelConfig) -> Iterator[Mistake]:
    """Seen with policies that are never reached: 4 requests a second waited 0.1 to 0.3 s more."""
    if path := policy_of_queue(config):
        text = f"with a queue policy, requests may wait {_IDLE_WAIT}"
        hint = (
            "it shows in the tail, most at light load; where an SLO is below 1 s, leave out "
            "timeouts, limits and priorities, or let tune run compare"
        )
        yield path, text, hint


def _graph_level(config: ModelConfig) -> Iterator[Mistake]:
    """Two small models were 25 to 31% slower at 2, and as slow at -1 and 1."""
    level = config.optimization.graph.level
    kept = {-1: "only the basic graph optimizations", 1: "not all graph optimizations", 2: "none"}
    if backend_of(config) == "onnxruntime" and level in kept:
        text = f"level {level} keeps {kept[level]} of ONNX Runtime"
        yield "optimization.graph.level", text, "leave it out: 0, the default, has all"


def _timeout_beside_delay(config: ModelConfig) -> Iterator[Mistake]:
    """Payloads that the delay merges are counted out of those that wait, and never in again."""
    batching = config.dynamic_batching
    timeout = batching.default_queue_policy.default_timeout_microseconds
    if timeout > batching.max_queue_delay_microseconds > 0:
        text = f"a queue timeout beside a delay {_WEARS_OUT}"
        hint = "update the server, or set one of the two to 0; loading the model again restores it"
        yield "dynamic_batching.default_queue_policy.default_timeout_microseconds", text, hint


def _timeout_within_delay(config: ModelConfig) -> Iterator[Mistake]:
    for path, text in timeouts_within_delay(config):
        hint = "make default_timeout_microseconds well above max_queue_delay_microseconds"
        yield path, text, hint


def _stateless_sequences(config: ModelConfig) -> Iterator[Mistake]:
    """Sequence batching is for stateful models; it has nothing to do with variable lengths.

    A Python model may keep its state by ``request.correlation_id()``, which no config shows.
    """
    batching = config.sequence_batching
    stateful = batching.iterative_sequence or batching.control_input or batching.state
    if config.HasField("sequence_batching") and not stateful:
        text = "no control_input and no state: only the correlation id distinguishes sequences"
        hint = "keep it for a model that keeps state by that id; a stateless one needs no sequences"
        yield "sequence_batching", text, hint


def _unequal_shapes(config: ModelConfig) -> Iterator[Mistake]:
    """Told once, however many inputs there are: one is enough to keep two requests apart."""
    lengths = inputs_of_any_length(config)
    first = next((i for i, t in enumerate(config.input) if t.name in lengths), None)
    if first is not None:
        text = "requests of different lengths never share a batch"
        hint = "pad them to a few lengths, or set allow_ragged_batch if the model can take that"
        yield f"input[{first}].dims", text, hint


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


def _stub_names(config: ModelConfig) -> Iterator[Mistake]:
    """A Python process is named after its instance (IsValidIdentifier in the backend, source)."""
    groups = ((f"instance_group[{i}].name", g.name) for i, g in enumerate(config.instance_group))
    for path, name in (("name", config.name), *groups):
        bad = refused_in_names(name) if backend_of(config) == "python" else ()
        if bad:
            text = (
                f"Triton since release 25.09 loads no Python model with {' '.join(bad)} in its name"
            )
            yield path, text, "take letters, digits, - and _"


def _unread_keys(config: ModelConfig) -> Iterator[Mistake]:
    yield from unread_keys(config, backend_of(config))
    yield from ignored_threads(config, backend_of(config))


def _refused_values(config: ModelConfig) -> Iterator[Mistake]:
    return (m for refused, m in values_amiss(config, backend_of(config)) if refused)


def _misread_values(config: ModelConfig) -> Iterator[Mistake]:
    return (m for refused, m in values_amiss(config, backend_of(config)) if not refused)


def _continuous(config: ModelConfig) -> Iterator[Mistake]:
    if config.backend in _CONTINUOUS and config.HasField("dynamic_batching"):
        text = f"{config.backend} batches by itself, token by token: dynamic_batching gains nothing"
        yield "dynamic_batching", text, "tune the backend's own parameters"


_REMARKS: tuple[tuple[Severity, str, Check], ...] = (
    (Severity.NOTE, "preferred-sizes-set", _preferred_sizes),
    (Severity.NOTE, "no-queue-timeout", _no_eviction),
    (Severity.NOTE, "queue-policy-idle", _idle_wait),
    (Severity.NOTE, "timeout-beside-delay", _timeout_beside_delay),
    (Severity.WARNING, "timeout-within-delay", _timeout_within_delay),
    (Severity.NOTE, "stateless-sequences", _stateless_sequences),
    (Severity.NOTE, "unequal-shapes", _unequal_shapes),
    *((Severity.NOTE, rule, trap) for rule, trap in TRAPS),
    (Severity.WARNING, "mixed-kinds", _mixed_kinds),
    (Severity.NOTE, "hidden-batcher", _hidden_batcher),
    (Severity.WARNING, "tensorflow", last_release),
    (Severity.WARNING, "spanning-instances", spanning_mistakes),
    (Severity.NOTE, "continuous-batching", _continuous),
    (Severity.WARNING, "unread-parameter", _unread_keys),
    (Severity.ERROR, "parameter-value", _refused_values),
    (Severity.WARNING, "parameter-value", _misread_values),
    (Severity.WARNING, "graph-level", _graph_level),
    (Severity.WARNING, "python-name", _stub_names),
)
