"""What requests carry, in Triton's binary form: tensors, and whole requests made of input files.

A request is serialised when it is built and sent as bytes: while load is on, the client has
nothing left to do for it but to hand it to gRPC.
"""

from __future__ import annotations

import base64
import json
import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from tuner.errors import LoadFailedError, SpecError
from tuner.modelconfig.schema import enum_name
from tuner.spec.workload import Protocol

#: Above this the client would need more memory than it may take from the server.
MAX_BYTES = 1 << 30
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


@dataclass(frozen=True)
class RequestForm:
    """What requests to a model look like.

    Attributes:
        shapes: By input, without the batch; -1 where the input file gives the shape.
        priority: 1 is the highest; 0 leaves it to the model.
    """

    model: str
    datatypes: Mapping[str, str]
    shapes: Mapping[str, Sequence[int]]
    batched: bool
    batch_size: int
    priority: int = 0
    optional: Sequence[str] = ()


@dataclass(frozen=True)
class _Content:
    """One input of one inference, in Triton's binary form."""

    shape: tuple[int, ...]
    raw: bytes


def build(
    path: Path,
    form: RequestForm,
    count: int,
    protocol: Protocol = Protocol.GRPC,
    head: Sequence[str] = (),
) -> list[bytes]:
    """At most ``count`` requests as bytes; the run goes round them.

    Over gRPC a serialised ``ModelInferRequest`` each, over HTTP head, with these lines, and body.

    The k-th request carries the inferences from ``k * batch_size`` on; the list of inputs goes
    round as well. Equal requests are one object.

    Raises:
        LoadFailedError: The file does not fit the model, or all of it does not fit in memory.
    """
    steps = _steps(path)
    # after as many requests as there are steps, whatever the batch size, the same come again
    wanted = range(min(count, len(steps)) * form.batch_size)
    contents = [_contents(step, form) for step in steps[: len(wanted)]]
    known: dict[bytes, bytes] = {}
    requests, total = [], 0
    for first in wanted[:: form.batch_size]:
        batch = [contents[i % len(steps)] for i in range(first, first + form.batch_size)]
        request = _WRITERS[protocol](_tensors(batch, form), form, head)
        if request not in known:
            known[request] = request
            total += len(request)
        if total > MAX_BYTES:
            raise LoadFailedError(
                f"the requests of one measurement take more than {MAX_BYTES >> 20} MiB",
                "ask for fewer unique inputs, or a smaller batch_size",
            )
        requests.append(known[request])
    return requests


def _steps(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        steps = json.loads(path.read_bytes())["data"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LoadFailedError(f"{path}: not in perf_analyzer's input format: {error}") from error
    if not steps or not all(isinstance(step, dict) for step in steps):
        raise LoadFailedError(
            f"{path}: not one flat list of steps",
            "sequences of steps are sent by perf_analyzer only",
        )
    return list(steps)


def _contents(step: Mapping[str, Any], form: RequestForm) -> dict[str, _Content]:
    if missing := form.datatypes.keys() - step.keys() - {*form.optional}:
        raise LoadFailedError(f"a step of the inputs has no {', '.join(sorted(missing))}")
    return {
        name: _content(name, step[name], datatype, form.shapes[name])
        for name, datatype in form.datatypes.items()
        if name in step
    }


def _content(name: str, given: Any, datatype: str, shape: Sequence[int]) -> _Content:
    """perf_analyzer's forms: ``{b64, shape}``, ``{content, shape}``, or values alone."""
    values = given
    if isinstance(given, dict):
        shape = given.get("shape", shape)
        values = given.get("content", [])
    if any(size < 0 for size in shape):
        raise LoadFailedError(
            f"input {name}: variable dimensions, and no shape",
            'write {"content": ..., "shape": ..}',
        )
    try:
        if isinstance(given, dict) and "b64" in given:
            return _Content(tuple(shape), base64.b64decode(given["b64"]))
        return _Content(tuple(shape), _raw(values, datatype))
    except (ValueError, TypeError, OverflowError) as error:
        raise LoadFailedError(f"input {name} is not {datatype}: {error}") from error


def _raw(values: Any, datatype: str) -> bytes:
    import numpy as np
    from tritonclient import utils

    if datatype == "BYTES":
        texts = np.array(np.asarray(values, dtype=object).ravel(), dtype=object)
        return bytes(utils.serialize_byte_tensor(texts).item())
    if datatype == "BF16":  # the upper half of a float; tritonclient 2.73 has no function for it
        return np.array(values, dtype="<f4").ravel().view("<u2")[1::2].tobytes()
    return np.array(values, dtype=utils.triton_to_np_dtype(datatype)).tobytes()


def _tensors(batch: Sequence[Mapping[str, _Content]], form: RequestForm) -> Mapping[str, _Content]:
    """The inputs of one request, by name."""
    leading = (form.batch_size,) if form.batched else ()
    tensors = {}
    for name in {name: None for step in batch for name in step}:
        shapes = {step[name].shape if name in step else None for step in batch}
        shape = shapes.pop()
        if shapes or shape is None:
            raise LoadFailedError(f"input {name}: shapes differ within one batch")
        raw = b"".join(step[name].raw for step in batch)
        tensors[name] = _Content((*leading, *shape), raw)
    return tensors


def _over_grpc(tensors: Mapping[str, _Content], form: RequestForm, _: Sequence[str]) -> bytes:
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name=form.model)
    if form.priority:
        request.parameters["priority"].uint64_param = form.priority
    for name, tensor in tensors.items():
        request.inputs.add(name=name, datatype=form.datatypes[name], shape=tensor.shape)
        request.raw_input_contents.append(tensor.raw)
    return bytes(request.SerializeToString())


def _over_http(tensors: Mapping[str, _Content], form: RequestForm, lines: Sequence[str]) -> bytes:
    """Tensors in binary both ways, as perf_analyzer has them.

    Source: Triton's binary tensor data extension.
    """
    inputs = [
        {
            "name": name,
            "shape": tensor.shape,
            "datatype": form.datatypes[name],
            "parameters": {"binary_data_size": len(tensor.raw)},
        }
        for name, tensor in tensors.items()
    ]
    parameters = {"binary_data_output": True} | ({"priority": p} if (p := form.priority) else {})
    told = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    size = len(told) + sum(len(tensor.raw) for tensor in tensors.values())
    head = (
        f"POST /v2/models/{quote(form.model)}/infer HTTP/1.1",
        *lines,
        "Content-Type: application/octet-stream",
        f"Inference-Header-Content-Length: {len(told)}",
        f"Content-Length: {size}",
        "",
        "",
    )
    return "\r\n".join(head).encode() + told + b"".join(t.raw for t in tensors.values())


_WRITERS = {Protocol.GRPC: _over_grpc, Protocol.HTTP: _over_http}
