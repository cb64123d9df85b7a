"""A whole request as bytes, over gRPC and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from tuner.load.traffic.sequences.pace import SequenceIds, first_id, marks
from tuner.spec.workload import Protocol

#: Puts an input's bytes elsewhere, and returns the parameters of a request that say where.
Lay = Callable[[bytes], Mapping[str, str | int]]


@dataclass(frozen=True)
class ContentSize:
    """What one input of one inference takes in Triton's binary form."""

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
    """What requests to a model look like.

    Attributes:
        priority: 1 is the highest; 0 leaves it to the model.
        sequence_ids: How they name their sequence; None where the model takes none.
    """

    model: str
    datatypes: Mapping[str, str]
    batched: bool
    batch_size: int
    priority: int = 0
    sequence_ids: SequenceIds | None = None

    def alone(self, requests: list[bytes]) -> list[bytes]:
        """The same; where the model takes sequences, each a whole one."""
        if self.sequence_ids is None:
            return requests
        first, ids = first_id(), self.sequence_ids
        numbered = enumerate(requests, start=first)
        return [request + marks(n, ids, start=True, end=True) for n, request in numbered]


#: What a request carries, by input.
Tensors = Mapping[str, Content]


def _over_grpc(
    tensors: Mapping[str, Content], form: RequestForm, _: Sequence[str], lay: Lay | None
) -> bytes:
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name=form.model)
    if form.priority:
        request.parameters["priority"].uint64_param = form.priority
    for name, tensor in tensors.items():
        sent = request.inputs.add(name=name, datatype=form.datatypes[name], shape=tensor.shape)
        if lay is None:
            request.raw_input_contents.append(tensor.raw)
        for key, value in lay(tensor.raw).items() if lay else ():
            kind = "string_param" if isinstance(value, str) else "int64_param"
            setattr(sent.parameters[key], kind, value)
    return bytes(request.SerializeToString())


def _over_http(
    tensors: Mapping[str, Content], form: RequestForm, head: Sequence[str], lay: Lay | None
) -> bytes:
    """Tensors in binary both ways, as perf_analyzer has them.

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
    header = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    body = b"" if lay else b"".join(tensor.raw for tensor in tensors.values())
    lines = (
        f"POST /v2/models/{quote(form.model)}/infer HTTP/1.1",
        *head,
        "Content-Type: application/octet-stream",
        f"Inference-Header-Content-Length: {len(header)}",
        f"Content-Length: {len(header) + len(body)}",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + header + body


WRITERS = {Protocol.GRPC: _over_grpc, Protocol.HTTP: _over_http}
