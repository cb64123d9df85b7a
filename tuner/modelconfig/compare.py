"""Whether a server runs the config that it was given."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.path import element_index, get
from tuner.modelconfig.path_steps import Step, format_steps, parse_steps
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.values import FieldValue

#: SEQUENCE_IDLE_DEFAULT_MICROSECONDS of Triton's core.
_DEFAULT_SEQUENCE_IDLE_US = 1_000_000
#: What Triton or the backend fills in, from the machine or the model's files, when it is unset.
_FILLED_IN = ("instance_group", "platform", "backend", "default_model_filename", "input", "output")


def differences(asked: ModelConfig, running: ModelConfig, paths: Iterable[str]) -> list[str]:
    """Fields in which ``running``, as the server reports it, is not what was ``asked``.

    Compares ``paths`` only, after filling ``asked`` in as Triton does when it loads a model
    (NormalizeModelConfig and NormalizeInstanceGroup in core's model_config_utils.cc): without
    preferred sizes it prefers max_batch_size, an instance group left open gets a kind, a count
    and GPUs, and so on. What was left open there may be anything.

    Returns:
        One sentence for each difference.
    """
    expected = _normalize(asked)
    found = []
    for path in paths:
        steps = parse_steps(path)
        wanted = get(expected, path)
        if _is_left_open(steps, wanted):
            continue
        actual = _get_or_none(running, format_steps(_by_position(expected, steps, path)))
        if (wanted or None) != (actual or None):
            found.append(f"asked for {path} = {_words(wanted)}, the server has {_words(actual)}")
    return found


def _get_or_none(config: ModelConfig, path: str) -> FieldValue:
    try:
        return get(config, path)
    except SpecError:  # fewer elements than requested
        return None


def _normalize(asked: ModelConfig) -> ModelConfig:
    config = deepcopy(asked)
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    if config.HasField("dynamic_batching"):
        _prefer_largest(config.dynamic_batching, config.max_batch_size)
    if config.HasField("sequence_batching"):
        sequence = config.sequence_batching
        if not sequence.max_sequence_idle_microseconds:
            sequence.max_sequence_idle_microseconds = _DEFAULT_SEQUENCE_IDLE_US
        if sequence.HasField("oldest"):
            _prefer_largest(sequence.oldest, config.max_batch_size)
    if not config.HasField("ensemble_scheduling"):
        for buffer in ("input_pinned_memory", "output_pinned_memory"):
            if not config.optimization.HasField(buffer):
                getattr(config.optimization, buffer).enable = True
    return config


def _prefer_largest(batcher: Any, max_batch_size: int) -> None:
    if not batcher.preferred_batch_size and max_batch_size > 0:
        batcher.preferred_batch_size.append(max_batch_size)


def _is_left_open(steps: tuple[Step, ...], wanted: FieldValue) -> bool:
    """Zero counts, no GPUs, KIND_AUTO and the like in fields that Triton then fills in."""
    return steps[0].field.name in _FILLED_IN and (not wanted or wanted == "KIND_AUTO")


def _by_position(config: ModelConfig, steps: tuple[Step, ...], path: str) -> tuple[Step, ...]:
    """The same elements by position: Triton keeps their order, but may change their kinds."""
    first, *rest = steps
    if first.is_map or first.field.name != "instance_group":
        return steps
    index = element_index(config, first, path)
    return (Step(first.field, index=index or 0), *rest)


def _words(value: FieldValue) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, tuple):
        return f"[{', '.join(str(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
