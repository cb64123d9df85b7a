"""Tensors whose values a config brings itself: warm-up samples, and the first states of sequences.

From GenerateWarmupData in core's backend_model_instance.cc, Normalize in its infer_request.cc and
GenerateInitialStateData in its sequence_batch_scheduler.cc. All mistakes end the load of the model;
those of warm-up samples were tried on tritonserver 2.51 (24.10).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from tuner.modelconfig.backends import Mistake
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.spec.mistakes import did_you_mean, listed
from tuner.spec.units import count_text

_LENGTH_BYTES = 4  # before each string


@dataclass(frozen=True)
class WarmupTensor:
    """One such tensor.

    Attributes:
        given: Its type, its dims, and where its values come from.
        expected: The input or state that it stands for; None where the config has none.
        file: Below the model's directory; empty without one.
    """

    path: str
    what: str
    given: Any
    expected: Any
    file: str

    def mistakes(self) -> Iterator[Mistake]:
        given, expected = self.given, self.expected
        (oneof,) = given.DESCRIPTOR.oneofs
        if given.WhichOneof(oneof.name) is None:
            sources = " or ".join(field.name for field in oneof.fields)
            yield self.path, f"{self.what} has no values", f"give it {sources}"
        if -1 in given.dims:
            yield self.path, f"{self.what} has an open dimension", "give it a size"
        elif expected is not None:
            types = [enum_name(tensor, "data_type") for tensor in (given, expected)]
            if types[1] not in ("TYPE_INVALID", types[0]):
                yield self.path, f"{self.what} is {' instead of '.join(types)}", ""
            dims, wanted = list(given.dims), list(expected.dims)
            fit = all(size in (-1, dim) for dim, size in zip(dims, wanted, strict=False))
            shape = getattr(expected, "is_shape_tensor", False)
            if wanted and not shape and not (fit and len(dims) == len(wanted)):
                text = f"{self.what} has dims {dims} instead of {wanted}"
                yield self.path, text, "dims leave the batch out"

    def mistake_in(self, data: bytes) -> str:
        """Why the bytes of its file are not its values; empty where they may be."""
        data_type, elements = enum_name(self.given, "data_type"), prod(self.given.dims)
        if data_type == "TYPE_STRING":
            count = position = 0
            while position + _LENGTH_BYTES <= len(data):
                length = data[position : position + _LENGTH_BYTES]
                position += _LENGTH_BYTES + int.from_bytes(length, "little")
                count += 1
            has = str(count) if position == len(data) else "something else"
            wanted = f"{count_text(elements, 'string')}, each after its length in"
            text = f"the file has {has} in place of {wanted} {_LENGTH_BYTES} bytes"
            return "" if has == str(elements) else text
        size = elements * int(re.sub(r"\D", "", data_type) or 8) // 8  # TYPE_BOOL has one byte
        short = f"the file has {len(data):,} of {count_text(size, 'byte')}"
        return short if len(data) < size else ""


def samples(config: ModelConfig) -> Iterator[WarmupTensor]:
    """All of them; a warm-up sample without rows is skipped by Triton too."""
    inputs = {tensor.name: tensor for tensor in config.input}
    for path, name, warmup in _warmups(config):
        for key, given in sorted(warmup.inputs.items()):
            file = given.input_data_file and f"warmup/{given.input_data_file}"
            place = f"{path}.inputs[{key}]"
            yield WarmupTensor(place, f"{key} of {name}", given, inputs.get(key), file)
    for index, state in enumerate(config.sequence_batching.state):
        for given in state.initial_state[:1]:
            file = given.data_file and f"initial_state/{given.data_file}"
            place = f"sequence_batching.state[{index}].initial_state"
            yield WarmupTensor(
                place, f"the initial state of {state.input_name}", given, state, file
            )


def _warmups(config: ModelConfig) -> Iterator[tuple[str, str, Any]]:
    for index, warmup in enumerate(config.model_warmup):
        if warmup.batch_size:
            yield f"model_warmup[{index}]", f"the warm-up sample {warmup.name!r}", warmup


def skipped(config: ModelConfig) -> Iterator[Mistake]:
    """Samples without rows: the model loads cold (`Skipping batch 0 warmup sample`, 2.51)."""
    for index, warmup in enumerate(config.model_warmup):
        if not warmup.batch_size:
            text = f"the warm-up sample {warmup.name!r} has a batch_size of 0: Triton skips it"
            yield f"model_warmup[{index}]", text, "write batch_size: 1, also without batches"


def mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """Inputs that are missing, types and dims of others, more rows than a batch may have.

    An input that the config does not have is no mistake by itself: the backend gets it.
    """
    for path, name, warmup in _warmups(config):
        needed = [tensor.name for tensor in config.input if not tensor.optional]
        if missing := [tensor for tensor in needed if tensor not in warmup.inputs]:
            others = sorted({*warmup.inputs} - {tensor.name for tensor in config.input})
            stray = f": {listed(map(repr, others))} is no input" if others else ""
            near = did_you_mean("".join(others[:1]), missing)
            text = f"{name} has no {listed(missing)}{stray}"
            yield path, text, near or f"the model takes {listed(needed)}"
    if config.max_batch_size > 0:
        yield from _too_many_rows(config, config.max_batch_size)
    for sample in samples(config):
        yield from sample.mistakes()


def mistakes_without_batches(config: ModelConfig) -> Iterator[Mistake]:
    """More than one row for a model that takes no batches, where nothing completes that."""
    if not config.max_batch_size:
        yield from _too_many_rows(config, 1, ", which fails its load or ends tritonserver")


def _too_many_rows(config: ModelConfig, most: int, end: str = "") -> Iterator[Mistake]:
    for path, name, warmup in _warmups(config):
        if warmup.batch_size > most:
            rows = count_text(warmup.batch_size, "row")
            text = f"max_batch_size {config.max_batch_size}: {name} has {rows}"
            hint = f"give the sample a batch_size of at most {most}"
            yield f"{path}.batch_size", f"{text}{end}", hint
