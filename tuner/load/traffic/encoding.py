"""Tensors and whole requests in Triton's binary form.

A request is serialized when it is built, and sent as bytes: under load, the client only has to
hand it to gRPC.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.errors import LoadFailedError, SpecError
from tuner.load.traffic.wire import WRITERS, Content, Lay, RequestForm, Tensors, json_bytes
from tuner.modelconfig.schema import enum_name, inputs_sent
from tuner.spec.mistakes import listed
from tuner.spec.workload import Protocol, RandomInputs, RecordingInputs

#: With more bytes, the client would need more memory than it may take from the server.
MAX_BYTES = 1 << 30
#: What says how random values are drawn.
Drawn = RandomInputs | RecordingInputs
#: As many random elements tell the size of all of them as JSON.
_DRAWN = 1000
_LETTERS = np.frombuffer((string.ascii_letters + string.digits).encode(), dtype="u1")


@dataclass(frozen=True)
class TensorShape:
    """One tensor of one inference, without the batch; -1: the file of requests gives it."""

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
    """The tensors of a random request; optional inputs only if the spec gives their shape.

    Args:
        config: Its ``ModelConfig``; -1 is a variable dimension.
        shapes: Shapes in the spec, by input, without the batch.

    Raises:
        SpecError: A variable dimension has no value, or a shape does not fit the model.
    """
    for _, text in misfits(model, config, shapes):
        raise SpecError(f"inputs.shapes: {text}")
    sent = inputs_sent(config, shapes)
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
    """Inputs in ``shapes`` that the model does not have with this shape, each with a sentence."""
    dims = {t.name: list(t.dims) for t in config.input}
    for name, given in shapes.items():
        if name not in dims:
            yield name, f"{name} is not an input: the inputs of {model} are {listed(dims)}"
        elif len(given) != len(dims[name]) or any(
            g <= 0 or d not in (-1, g) for g, d in zip(given, dims[name], strict=True)
        ):
            yield name, f"{name} cannot be {list(given)}, {model} has {dims[name]}"


def inputs_of(config: Any) -> tuple[TensorShape, ...]:
    """All inputs of a ``ModelConfig``; variable dimensions stay -1."""
    return tuple(
        TensorShape(t.name, datatype_of(t), tuple(t.dims), t.optional) for t in config.input
    )


def datatype_of(tensor: Any) -> str:
    """The name in requests of a ``data_type`` in a config."""
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

    Floats are uniform in 0..1, integers uniform in ``int_range`` (limited to the type's range),
    strings consist of letters and digits; four bytes with the length precede each string.

    Raises:
        SpecError: There are no random values for the datatype.
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
    """NumPy's type of a tensor; raises `SpecError` if no random values exist for it."""
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
    """Size of all inputs of a request in Triton's binary form, without its batch."""
    return sum(content_bytes(tensor, string_length) for tensor in tensors)


def output_bytes(config: Any, batch_size: int) -> dict[str, int]:
    """Size of each output of a request, by name; 0: only an answer shows it."""
    rows = batch_size if config.max_batch_size else 1
    sizes = {}
    for output in config.output:
        size = None if output.is_shape_tensor else fixed_bytes(output)
        sizes[output.name] = rows * (size or 0)
    return sizes


def fixed_bytes(output: Any) -> int | None:
    """Size of an output, without the batch; None for strings and variable dimensions."""
    tensor = TensorShape(output.name, datatype_of(output), tuple(output.dims))
    varies = tensor.datatype in ("BYTES", "INVALID") or min(tensor.shape, default=1) < 1
    return None if varies else content_bytes(tensor, 0)


def drawn_bytes(tensor: TensorShape, spec: Drawn, *, in_json: bool) -> int:
    """Size of one tensor of random values as it is sent; in JSON, estimated from some values."""
    if not in_json:
        return content_bytes(tensor, spec.string_length)
    count = min(tensor.elements, _DRAWN)
    some, rng = replace(tensor, shape=(count,)), np.random.default_rng(0)
    (raw,) = random_contents(some, 1, rng, spec.int_range, spec.string_length)
    size = json_bytes(tensor.name, tensor.datatype, Content(some.shape, raw))
    return round(size * tensor.elements / max(count, 1))


def numpy_type(datatype: str) -> np.dtype[Any] | None:
    """NumPy's type of a datatype; None if there is none."""
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
    """At most ``count`` requests as bytes; a run repeats them.

    Over gRPC, each is a serialized ``ModelInferRequest``; over HTTP, a head with the lines of
    ``head``, and a body. The k-th request carries the inferences from ``k * batch_size`` on; their
    list repeats too. Equal requests are the same object.

    Args:
        inferences: The inferences in their order, without the batch.
        count: Largest number of requests.
        protocol: gRPC or HTTP.
        head: Lines of the HTTP head.
        lay: Puts inputs, and perhaps outputs, outside of requests; None: requests have them.

    Raises:
        LoadFailedError: Inferences of a batch have different shapes, or the requests exceed
            `MAX_BYTES`.
    """
    # after as many requests as there are inferences, with any batch size, inputs repeat
    rounds = -(-lay.places // len(inferences)) if lay else 1
    wanted = range(min(count, rounds * len(inferences)) * form.batch_size)
    known: dict[bytes, bytes] = {}
    requests, total = [], 0
    for number, first in enumerate(wanted[:: form.batch_size]):
        batch = [inferences[i % len(inferences)] for i in range(first, first + form.batch_size)]
        request = WRITERS[protocol](_tensors(batch, form), form, head, lay, number)
        if request not in known:
            known[request] = request
            total += len(request)
        refuse_above_most(total)
        requests.append(known[request])
    return requests


def refuse_above_most(byte_count: int) -> None:
    """Raises `LoadFailedError` if distinct requests take more memory than a client may use."""
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
        if name in form.shape_tensors:
            if len({step[name].raw for step in batch}) > 1:
                raise LoadFailedError(f"shape tensor {name}: values differ within one batch")
            tensors[name] = batch[0][name]
            continue
        raw = b"".join(step[name].raw for step in batch)
        tensors[name] = Content((*leading, *shape), raw)
    return tensors
