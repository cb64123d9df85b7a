"""What requests carry, in Triton's binary form: tensors, and whole requests made of input files.

A request is serialised when it is built and sent as bytes: while load is on, the client has
nothing left to do for it but to hand it to gRPC.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import LoadFailedError, SpecError
from tuner.load.traffic.wire import WRITERS, Content, Lay, RequestForm, Tensors
from tuner.modelconfig.schema import enum_name
from tuner.spec.mistakes import listed
from tuner.spec.workload import Protocol

#: Above this the client would need more memory than it may take from the server.
MAX_BYTES = 1 << 30
_LETTERS = np.frombuffer((string.ascii_letters + string.digits).encode(), dtype="u1")


@dataclass(frozen=True)
class TensorShape:
    """One tensor of one inference, without the batch; -1 is left to a file of requests."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False

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
    for _, text in misfits(model, config, shapes):
        raise SpecError(f"inputs.shapes: {text}")
    sent = [t for t in config.input if t.name in shapes or not t.optional] or config.input
    dims = {t.name: [*shapes.get(t.name, t.dims)] for t in sent}
    if opened := {name: shape for name, shape in dims.items() if -1 in shape}:
        each = listed(f"{name} {shape}" for name, shape in opened.items())
        examples = ((name, [128 if d < 0 else d for d in shape]) for name, shape in opened.items())
        guesses = listed(f"{name}: {shape}" for name, shape in examples)
        raise SpecError(
            f"{model} leaves the shapes of inputs open: {each}",
            f"write in the spec what your users send, e.g. inputs.shapes: {{{guesses}}}",
        )
    return tuple(TensorShape(t.name, datatype_of(t), tuple(dims[t.name])) for t in sent)


def misfits(
    model: str, config: Any, shapes: Mapping[str, Sequence[int]]
) -> Iterator[tuple[str, str]]:
    """The inputs that a model does not have, or not in this shape, each with a sentence."""
    dims = {t.name: list(t.dims) for t in config.input}
    for name, given in shapes.items():
        if name not in dims:
            yield name, f"{name} is no input: the inputs of {model} are {listed(dims)}"
        elif len(given) != len(dims[name]) or any(
            g <= 0 or d not in (-1, g) for g, d in zip(given, dims[name], strict=True)
        ):
            yield name, f"{name} cannot be {list(given)}, {model} has {dims[name]}"


def inputs_of(config: Any) -> tuple[TensorShape, ...]:
    """All inputs of a ``ModelConfig``, with open dimensions as they are."""
    return tuple(
        TensorShape(t.name, datatype_of(t), tuple(t.dims), t.optional) for t in config.input
    )


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
    dtype = drawable(tensor)
    if dtype.kind == "f":
        values = rng.random(size).astype(dtype)
    elif dtype.kind == "b":
        values = rng.random(size) < 0.5
    else:
        limits = np.iinfo(dtype)
        low, high = (min(max(bound, int(limits.min)), int(limits.max)) for bound in int_range)
        values = rng.integers(low, high, size, dtype=dtype, endpoint=True)
    return [row.tobytes() for row in values]


def drawable(tensor: TensorShape) -> np.dtype[Any]:
    """NumPy's type of a tensor; raises `SpecError` where no random values can be drawn for it."""
    dtype = np.dtype("u2") if tensor.datatype == "BF16" else numpy_type(tensor.datatype)
    if dtype is None:
        raise SpecError(
            f"input {tensor.name}: no random values for datatype {tensor.datatype}",
            "give inputs of kind file",
        )
    return dtype


def content_bytes(tensor: TensorShape, string_length: int) -> int:
    """Size of one tensor in Triton's binary form."""
    if tensor.datatype == "BYTES":
        return tensor.elements * (4 + string_length)
    if tensor.datatype == "BF16":
        return tensor.elements * 2
    return tensor.elements * (numpy_type(tensor.datatype) or np.dtype("f8")).itemsize


def request_bytes(tensors: Iterable[TensorShape], string_length: int) -> int:
    """The same of all inputs of a request, without its batch."""
    return sum(content_bytes(tensor, string_length) for tensor in tensors)


def numpy_type(datatype: str) -> np.dtype[Any] | None:
    """NumPy's type of a datatype; None where it has none."""
    from tritonclient.utils import triton_to_np_dtype

    known = triton_to_np_dtype(datatype)
    return None if known is None else np.dtype(known)


def build(
    inferences: Sequence[Tensors],
    form: RequestForm,
    count: int,
    protocol: Protocol = Protocol.GRPC,
    head: Sequence[str] = (),
    lay: Lay | None = None,
) -> list[bytes]:
    """At most ``count`` requests as bytes; the run goes round them.

    Over gRPC a serialised ``ModelInferRequest`` each, over HTTP head, with these lines, and body.

    The k-th request carries the inferences from ``k * batch_size`` on; their list goes round as
    well. Equal requests are one object. With ``lay``, which puts an input's bytes
    elsewhere and returns the parameters that say where, requests do not have them.

    Raises:
        LoadFailedError: Those of a batch do not fit each other, or all of it not in memory.
    """
    # after as many requests as there are inferences, whatever the batch size, the same come again
    wanted = range(min(count, len(inferences)) * form.batch_size)
    known: dict[bytes, bytes] = {}
    requests, total = [], 0
    for first in wanted[:: form.batch_size]:
        batch = [inferences[i % len(inferences)] for i in range(first, first + form.batch_size)]
        request = WRITERS[protocol](_tensors(batch, form), form, head, lay)
        if request not in known:
            known[request] = request
            total += len(request)
        refuse_above_most(total)
        requests.append(known[request])
    return requests


def refuse_above_most(byte_count: int) -> None:
    """Raises `LoadFailedError` where different requests take more memory than a client may."""
    if byte_count > MAX_BYTES:
        raise LoadFailedError(
            f"the requests of one measurement take more than {MAX_BYTES >> 20} MiB",
            "ask for fewer unique inputs, or a smaller batch_size",
        )


def _tensors(batch: Sequence[Tensors], form: RequestForm) -> Tensors:
    """The inputs of one request, by name."""
    leading = (form.batch_size,) if form.batched else ()
    tensors = {}
    for name in {name: None for step in batch for name in step}:
        shapes = {step[name].shape if name in step else None for step in batch}
        shape = shapes.pop()
        if shapes or shape is None:
            raise LoadFailedError(f"input {name}: shapes differ within one batch")
        raw = b"".join(step[name].raw for step in batch)
        tensors[name] = Content((*leading, *shape), raw)
    return tensors
