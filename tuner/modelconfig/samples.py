"""Tensors whose values a config brings itself: warm-up samples, and the first states of sequences.

From GenerateWarmupData in core's backend_model_instance.cc, Normalize in its infer_request.cc and
GenerateInitialStateData in its sequence_batch_scheduler.cc. All of it ends the load of the model;
what is said of warm-up samples was tried on tritonserver 2.51 (24.10).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from tuner.modelconfig.backends import Mistake
from tuner.modelconfig.schema import ModelConfig, enum_name
from tuner.spec.mistakes import did_you_mean

_LENGTH_BYTES = 4  # before each string


@dataclass(frozen=True)
class Sample:
    """One such tensor.

    Attributes:
        what: What it is called in messages.
        given: Its ``data_type`` and ``dims``, as the config has them.
        expected: The input or state that it stands for; None where the config has none.
        sources: Fields of which one says where the values come from.
        file: Path below the model's directory; empty without one.
    """

    path: str
    what: str
    given: Any
    expected: Any
    sources: tuple[str, ...]
    file: str

    def mistakes(self) -> Iterator[Mistake]:
        given, expected = self.given, self.expected
        if not any(given.HasField(source) for source in self.sources):
            yield self.path, f"{self.what} has no values", f"give it {' or '.join(self.sources)}"
        if -1 in given.dims:
            yield self.path, f"{self.what} has an open dimension", "give it a size"
        if expected is None:
            return
        if expected.data_type not in (0, given.data_type):
            types = (enum_name(tensor, "data_type") for tensor in (given, expected))
            yield self.path, f"{self.what} is {' instead of '.join(types)}", ""
        wanted, dims = list(expected.dims), list(given.dims)
        fit = len(wanted) == len(dims) and all(
            there in (-1, dim) or dim == -1 for there, dim in zip(wanted, dims, strict=True)
        )
        if wanted and not fit and not getattr(expected, "is_shape_tensor", False):
            text = f"{self.what} has dims {dims} instead of {wanted}"
            yield self.path, text, "dims leave the batch out"

    def mistake_in(self, data: bytes) -> str:
        """Why the bytes of its file are not its values; empty where they may be."""
        data_type, elements = enum_name(self.given, "data_type"), prod(self.given.dims)
        if data_type == "TYPE_STRING":
            found = _strings_in(data)
            wrong = found != elements
            has = "something else" if found is None else f"{found}"
            wanted = f"{elements} strings, each after its length in {_LENGTH_BYTES} bytes"
            return f"{wanted}, are wanted, the file has {has}" if wrong else ""
        bits = re.sub(r"\D", "", data_type) or 8  # TYPE_BOOL
        wanted_bytes = elements * int(bits) // 8
        short = f"{wanted_bytes} bytes are wanted, the file has {len(data)}"
        return short if len(data) < wanted_bytes else ""


def _strings_in(data: bytes) -> int | None:
    count = position = 0
    while position + _LENGTH_BYTES <= len(data):
        length = data[position : position + _LENGTH_BYTES]
        position += _LENGTH_BYTES + int.from_bytes(length, "little")
        count += 1
    return count if position == len(data) else None


def samples(config: ModelConfig) -> Iterator[Sample]:
    """All of them; a warm-up sample without rows is skipped by Triton too."""
    inputs = {tensor.name: tensor for tensor in config.input}
    for path, name, warmup in _warmups(config):
        for key, given in sorted(warmup.inputs.items()):
            sources: tuple[str, ...] = ("zero_data", "random_data", "input_data_file")
            what, place = f"{key} of {name}", f"{path}.inputs[{key}]"
            file = given.input_data_file and f"warmup/{given.input_data_file}"
            yield Sample(place, what, given, inputs.get(key), sources, file)
    for index, state in enumerate(config.sequence_batching.state):
        for given in state.initial_state[:1]:
            place = f"sequence_batching.state[{index}].initial_state"
            what, sources = f"the initial state of {state.input_name}", ("zero_data", "data_file")
            file = given.data_file and f"initial_state/{given.data_file}"
            yield Sample(place, what, given, state, sources, file)


def _warmups(config: ModelConfig) -> Iterator[tuple[str, str, Any]]:
    for index, warmup in enumerate(config.model_warmup):
        if warmup.batch_size:
            yield f"model_warmup[{index}]", f"the warm-up sample {warmup.name!r}", warmup


def mistakes(config: ModelConfig) -> Iterator[Mistake]:
    """Inputs that are missing, types and dims of others, and more rows than a batch may have.

    Above max_batch_size the server refuses the load or dies. An input that the config does not have
    is passed on to the backend, and is no mistake by itself.
    """
    for path, name, warmup in _warmups(config):
        needed = [tensor.name for tensor in config.input if not tensor.optional]
        missing = [needed_one for needed_one in needed if needed_one not in warmup.inputs]
        if missing:
            others = sorted({*warmup.inputs} - {tensor.name for tensor in config.input})
            stray = f": {', '.join(map(repr, others))} is no input" if others else ""
            near = did_you_mean(others[0], missing) if others else ""
            text = f"{name} has no {', '.join(missing)}{stray}"
            yield path, text, near or f"the model takes {', '.join(needed)}"
        if 0 < config.max_batch_size < warmup.batch_size:
            yield _too_many(path, name, warmup.batch_size, config.max_batch_size)
    for sample in samples(config):
        yield from sample.mistakes()


def mistakes_without_batches(config: ModelConfig) -> Iterator[Mistake]:
    """Rows of a warm-up sample of a model that takes no batches, which nothing completes."""
    for path, name, warmup in _warmups(config):
        if not config.max_batch_size and warmup.batch_size > 1:
            place, text, hint = _too_many(path, name, warmup.batch_size, 0)
            yield place, f"{text}, which fails its load or ends tritonserver", hint


def _too_many(path: str, name: str, rows: int, largest: int) -> Mistake:
    text, most = f"max_batch_size {largest}: {name} has {rows} rows", max(largest, 1)
    return f"{path}.batch_size", text, f"give the sample a batch_size of at most {most}"
