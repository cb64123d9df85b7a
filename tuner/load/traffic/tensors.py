"""Input tensors of a model: their shapes, and random contents for them."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import SpecError
from tuner.server.control import Tensor

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
    tensors: Sequence[Tensor], batched: bool, shapes: Mapping[str, Sequence[int]]
) -> tuple[TensorShape, ...]:
    """Fills in the variable dimensions of a model's inputs.

    Args:
        tensors: From the model's metadata; -1 is a variable dimension.
        batched: Whether the first dimension is the batch (``max_batch_size`` above 0).
        shapes: Shapes from the spec, by input, without the batch.

    Raises:
        SpecError: A variable dimension is left open, or a shape does not fit the model.
    """
    if unknown := shapes.keys() - {t.name for t in tensors}:
        known = ", ".join(t.name for t in tensors)
        raise SpecError(
            f"inputs.shapes names {', '.join(sorted(unknown))}, but the model's inputs are {known}"
        )
    return tuple(_resolved(t, t.shape[1:] if batched else t.shape, shapes) for t in tensors)


def _resolved(
    tensor: Tensor, shape: Sequence[int], shapes: Mapping[str, Sequence[int]]
) -> TensorShape:
    given = shapes.get(tensor.name)
    if given is None:
        if -1 in shape:
            raise SpecError(
                f"input {tensor.name} has shape {list(shape)}: its variable dimensions are open",
                f"give it a shape in the spec, e.g. inputs.shapes: {{{tensor.name}: [128]}}",
            )
        return TensorShape(tensor.name, tensor.datatype, tuple(shape))
    fits = len(given) == len(shape) and all(
        g > 0 and s in (-1, g) for g, s in zip(given, shape, strict=True)
    )
    if not fits:
        raise SpecError(
            f"inputs.shapes: {tensor.name} cannot be {list(given)}, the model has {list(shape)}"
        )
    return TensorShape(tensor.name, tensor.datatype, tuple(given))


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
