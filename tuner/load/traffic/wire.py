"""A complete request as bytes, over gRPC and over HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Interface
from urllib.parse import quote

import numpy as np

from tuner.errors import LoadFailedError
from tuner.load.traffic.sequences.pace import SequenceIds, first_id, marks
from tuner.spec.workload import Protocol

#: Parameters of a tensor that lies outside of its request or response.
Place = Mapping[str, str | int]
#: About as many elements of an input tell its size as JSON.
_LOOKED_AT = 4096


@dataclass(frozen=True)
class ContentSize:
    """Size of one input of one inference in Triton's binary form."""

    shape: tuple[int, ...]
    byte_count: int


@dataclass(frozen=True)
class Content:
    """One input of one inference, in Triton's binary form."""

    shape: tuple[int, ...]
    raw: bytes

    @property
    def size(self) -> ContentSize:
        return ContentSize(self.shape, len(self.raw))


@dataclass(frozen=True)
class RequestForm:
    """The form of requests to a model.

    Attributes:
        datatypes: Datatype of each input, by name.
        batched: Inputs have a batch dimension.
        batch_size: Inferences in one request.
        priority: 1 is the highest; 0: the model's default.
        version: Version of the model; 0: the server's choice.
        sequence_ids: Type of a sequence's id; None if the model takes no sequences.
        shape_tensors: Inputs without a batch dimension in a model that batches; inferences that
            share a request have equal ones (model_configuration.md).
        outputs: Bytes of each output of a request, by name; 0: only an answer shows them.
    """

    model: str
    datatypes: Mapping[str, str]
    batched: bool
    batch_size: int
    priority: int = 0
    version: int = 0
    sequence_ids: SequenceIds | None = None
    shape_tensors: Set[str] = frozenset()
    outputs: Mapping[str, int] = field(default_factory=dict)

    def alone(self, requests: list[bytes]) -> list[bytes]:
        """The same requests; if the model takes sequences, each marked as a complete sequence."""
        if self.sequence_ids is None:
            return requests
        first, ids = first_id(), self.sequence_ids
        numbered = enumerate(requests, start=first)
        return [request + marks(n, ids, start=True, end=True) for n, request in numbered]


#: Inputs of a request, by name.
Tensors = Mapping[str, Content]


class Lay(Interface):
    """Puts tensors outside of requests and responses.

    Attributes:
        places: Number of requests whose outputs have a place of their own.
    """

    places: int

    def __call__(self, raw: bytes) -> Place:
        """Stores the bytes of an input; returns where they are."""

    def outputs(self, form: RequestForm, number: int) -> Mapping[str, Place]:
        """The places that the server writes the outputs of a request to, by name.

        An output with an empty place comes back in the response; without any place all do.
        """


def _over_grpc(
    tensors: Tensors, form: RequestForm, _: Sequence[str], lay: Lay | None, number: int
) -> bytes:
    from tritonclient.grpc import service_pb2

    version = str(form.version or "")
    request = service_pb2.ModelInferRequest(model_name=form.model, model_version=version)
    if form.priority:
        request.parameters["priority"].uint64_param = form.priority
    for name, tensor in tensors.items():
        sent = request.inputs.add(name=name, datatype=form.datatypes[name], shape=tensor.shape)
        if lay is None:
            request.raw_input_contents.append(tensor.raw)
        _set(sent.parameters, lay(tensor.raw) if lay else {})
    for name, place in lay.outputs(form, number).items() if lay else ():
        _set(request.outputs.add(name=name).parameters, place)
    return bytes(request.SerializeToString())


def _set(parameters: Any, place: Place) -> None:
    for key, value in place.items():
        kind = "string_param" if isinstance(value, str) else "int64_param"
        setattr(parameters[key], kind, value)


def _over_http(
    tensors: Tensors, form: RequestForm, head: Sequence[str], lay: Lay | None, number: int
) -> bytes:
    """Tensors in binary form in both directions, as with perf_analyzer.

    Source: Triton's binary tensor data extension.
    """
    inputs = [
        {
            "name": name,
            "shape": tensor.shape,
            "datatype": form.datatypes[name],
            "parameters": lay(tensor.raw) if lay else {"binary_data_size": len(tensor.raw)},
        }
        for name, tensor in tensors.items()
    ]
    parameters = {"binary_data_output": True} | ({"priority": p} if (p := form.priority) else {})
    outputs = _outputs_in_json(form, lay, number)
    header = json.dumps({"inputs": inputs, "parameters": parameters, **outputs}).encode()
    body = b"" if lay else b"".join(tensor.raw for tensor in tensors.values())
    kind = "Content-Type: application/octet-stream"
    length = f"Inference-Header-Content-Length: {len(header)}"
    return _post(form, (*head, kind, length), header + body)


def _outputs_in_json(form: RequestForm, lay: Lay | None, number: int) -> dict[str, Any]:
    places = lay.outputs(form, number) if lay else {}
    outputs = [{"name": name, "parameters": place} for name, place in places.items()]
    return {"outputs": outputs} if outputs else {}


def _in_json(
    tensors: Tensors, form: RequestForm, head: Sequence[str], lay: Lay | None, number: int
) -> bytes:
    """Tensors as JSON both ways, as the protocol has them without Triton's extension.

    Raises:
        LoadFailedError: JSON has no such values.
    """
    inputs = []
    for name, tensor in tensors.items():
        sent: dict[str, Any] = {"name": name, "shape": tensor.shape}
        sent["datatype"] = form.datatypes[name]
        if lay is None:
            sent["data"] = _values(name, form.datatypes[name], tensor.raw)
        else:
            sent["parameters"] = lay(tensor.raw)
        inputs.append(sent)
    parameters = {"parameters": {"priority": form.priority}} if form.priority else {}
    outputs = _outputs_in_json(form, lay, number)
    body = json.dumps({"inputs": inputs, **parameters, **outputs}).encode()
    return _post(form, (*head, "Content-Type: application/json"), body)


def _values(name: str, datatype: str, raw: bytes, every: int = 1) -> list[Any]:
    """The elements of a tensor, or ``every`` so many, for JSON."""
    from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

    try:
        if datatype == "BYTES":
            return [text.decode() for text in deserialize_bytes_tensor(raw)[::every]]
        elements = np.frombuffer(raw, triton_to_np_dtype(datatype))
        if not np.isfinite(elements).all():
            raise ValueError("it is not finite")
    except ValueError as error:
        text = f"input {name} has a value that JSON does not have: {error}"
        raise LoadFailedError(text, "write workload.protocol: http") from error
    values: list[Any] = elements[::every].tolist()
    return values


def json_bytes(name: str, datatype: str, content: Content) -> int:
    """Size of an input's elements as JSON; of a large input, estimated from some of them.

    Raises:
        LoadFailedError: JSON has no such values.
    """
    count = math.prod(content.shape)
    values = _values(name, datatype, content.raw, every=max(count // _LOOKED_AT, 1))
    return round(len(json.dumps(values)) * count / max(len(values), 1))


def _post(form: RequestForm, head: Sequence[str], body: bytes) -> bytes:
    version = f"/versions/{form.version}" if form.version else ""
    start = f"POST /v2/models/{quote(form.model)}{version}/infer HTTP/1.1"
    lines = (start, *head, f"Content-Length: {len(body)}", "", "")
    return "\r\n".join(lines).encode() + body


WRITERS = {Protocol.GRPC: _over_grpc, Protocol.HTTP: _over_http, Protocol.HTTP_JSON: _in_json}
