"""Input tensors of a model: their shapes, and random contents for them."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import SpecError
from tuner.modelconfig.schema import enum_name

_LETTERS = np.frombuffer((string.ascii_letters + string.digits).encode(), dtype="u1")


@dataclass(frozen=True)
class TensorShape:
    """One tensor of one inference: ``shape`` has no batch dimension and no unknowns."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def resolve(
    model: str, config: Any, shapes: Mapping[str, Sequence[int]]
) -> tuple[TensorShape, ...]:
    """What a random request carries: optional inputs only where a shape is given for them.

    Args:
        config: Its ``ModelConfig``; -1 is a variable dimension.

    Raises:
        SpecError: Variable dimensions are left open, or a shape does not fit the model.
    """
    dims = {t.name: list(t.dims) for t in config.input}
    if unknown := shapes.keys() - dims.keys():
        raise SpecError(
            f"inputs.shapes names {', '.join(sorted(unknown))}, but the inputs of {model} are "
            f"{', '.join(dims)}"
        )
    for name, given in shapes.items():
        fits = len(given) == len(dims[name]) and all(
            g > 0 and d in (-1, g) for g, d in zip(given, dims[name], strict=True)
        )
        if not fits:
            raise SpecError(
                f"inputs.shapes: {name} cannot be {list(given)}, {model} has {dims[name]}"
            )
    sent = [t for t in config.input if t.name in shapes or not t.optional] or config.input
    found = {t.name: [*shapes.get(t.name, t.dims)] for t in sent}
    if opened := {name: shape for name, shape in found.items() if -1 in shape}:
        each = ", ".join(f"{name} {shape}" for name, shape in opened.items())
        shown = ((name, [128 if d < 0 else d for d in shape]) for name, shape in opened.items())
        guesses = ", ".join(f"{name}: {shape}" for name, shape in shown)
        raise SpecError(
            f"{model} leaves the shapes of inputs open: {each}",
            f"write in the spec what your users send, e.g. inputs.shapes: {{{guesses}}}",
        )
    return tuple(TensorShape(t.name, datatype_of(t), tuple(found[t.name])) for t in sent)


def datatype_of(tensor: Any) -> str:
    """The name in requests of a config's ``data_type``."""
    name = enum_name(tensor, "data_type").removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def random_contents(
    tensor: TensorShape,
    count: int,
    rng: np.random.Generator,
    int_range: tuple[int, int],
    string_length: int,
) -> list[bytes]:
    """Random values for ``count`` tensors, each in Triton's binary form.

    Floats are drawn from 0 to 1, integers from ``int_range`` (as far as the type can hold it),
    strings from letters and digits; a string is preceded by its length in four bytes.

    Raises:
        SpecError: The datatype cannot be drawn.
    """
    size = (count, tensor.elements)
    if tensor.datatype == "BYTES":
        letters = rng.choice(_LETTERS, (*size, string_length))
        length = np.frombuffer(string_length.to_bytes(4, "little"), dtype="u1")
        lengths = np.broadcast_to(length, (*size, 4))
        return [row.tobytes() for row in np.concatenate([lengths, letters], axis=2)]
    if tensor.datatype == "BF16":  # the upper half of a float32
        return [row.tobytes() for row in (rng.random(size, "f4").view("u4") >> 16).astype("u2")]
    dtype = _dtype(tensor)
    if dtype is None:
        raise SpecError(
            f"input {tensor.name}: no random values for datatype {tensor.datatype}",
            "give inputs of kind file",
        )
    if dtype.kind == "f":
        values = rng.random(size).astype(dtype)
    elif dtype.kind == "b":
        values = rng.random(size) < 0.5
    else:
        limits = np.iinfo(dtype)
        low, high = (min(max(bound, int(limits.min)), int(limits.max)) for bound in int_range)
        values = rng.integers(low, high, size, dtype=dtype, endpoint=True)
    return [row.tobytes() for row in values]


def content_bytes(tensor: TensorShape, string_length: int) -> int:
    """Size of one tensor in Triton's binary form."""
    if tensor.datatype == "BYTES":
        return tensor.elements * (4 + string_length)
    if tensor.datatype == "BF16":
        return tensor.elements * 2
    return tensor.elements * (_dtype(tensor) or np.dtype("f8")).itemsize


def _dtype(tensor: TensorShape) -> np.dtype[Any] | None:
    from tritonclient.utils import triton_to_np_dtype

    known = triton_to_np_dtype(tensor.datatype)
    return None if known is None else np.dtype(known)
