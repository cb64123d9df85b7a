"""Triton's `ModelConfig` as the installed tritonclient knows it; nothing here lists fields."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

#: tritonclient.grpc.model_config_pb2.ModelConfig; tritonclient has no type information.
ModelConfig: TypeAlias = Any


def new_config() -> ModelConfig:
    """An empty `ModelConfig`."""
    return _model_config_pb2().ModelConfig()


@cache
def _model_config_pb2() -> Any:
    """``tritonclient.grpc.model_config_pb2`` alone: its package also imports gRPC and NumPy."""
    package = importlib.util.find_spec("tritonclient")
    assert package is not None
    places = [f"{place}/grpc" for place in package.submodule_search_locations or ()]
    spec = PathFinder.find_spec("model_config_pb2", places)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def enum_name(message: Any, field: str) -> str:
    """What the value of an enum field is called: ``KIND_GPU``, ``TYPE_FP32``."""
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(values[getattr(message, field)].name)


def inputs_sent(config: ModelConfig, given: Collection[str] = ()) -> list[Any]:
    """The inputs that a request carries: those that are not optional, and those that are given.

    All of a model that has only optional ones, where none is given: it needs some.
    """
    sent = [tensor for tensor in config.input if tensor.name in given or not tensor.optional]
    return sent or list(config.input)


def shape_tensors(config: ModelConfig) -> frozenset[str]:
    """Names of inputs whose values are sizes: a request has them once, whatever its batch."""
    return frozenset(tensor.name for tensor in config.input if tensor.is_shape_tensor)


def same_config(one: ModelConfig, other: ModelConfig) -> bool:
    """Equal in every field, presence of empty sub-messages included."""
    return bool(
        one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)
    )


def message_types(root: Descriptor) -> list[tuple[str, Descriptor]]:
    """Every message type from ``root`` down, each with the dotted prefix of its fields' paths."""
    types = [("", root)]
    seen = {root.full_name}
    for prefix, descriptor in types:
        for field in descriptor.fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                types.append((f"{prefix}{field.name}.", inner))
    return types


def batches_sequences(config: ModelConfig) -> bool:
    """Whether the sequence batcher has the model's requests: it has no other, and no cache."""
    return bool(config.HasField("sequence_batching"))


def takes_sequences(config: ModelConfig) -> bool:
    """Whether clients send sequences.

    To an iterative model they send single requests, each of which the server itself makes a
    sequence of (IterativeSequencer in core).
    """
    return batches_sequences(config) and not config.sequence_batching.iterative_sequence
