"""A whole request as bytes, over gRPC and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from tuner.spec.workload import Protocol

if TYPE_CHECKING:
    from tuner.load.traffic.encoding import Content, RequestForm

    Tensors = Mapping[str, Content]

#: Puts an input's bytes elsewhere, and returns the parameters of a request that say where.
Lay = Callable[[bytes], Mapping[str, str | int]]


def _over_grpc(tensors: Tensors, form: RequestForm, _: Sequence[str], lay: Lay | None) -> bytes:
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


def _over_http(tensors: Tensors, form: RequestForm, head: Sequence[str], lay: Lay | None) -> bytes:
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
    told = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    body = b"" if lay else b"".join(tensor.raw for tensor in tensors.values())
    lines = (
        f"POST /v2/models/{quote(form.model)}/infer HTTP/1.1",
        *head,
        "Content-Type: application/octet-stream",
        f"Inference-Header-Content-Length: {len(told)}",
        f"Content-Length: {len(told) + len(body)}",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + told + body


WRITERS = {Protocol.GRPC: _over_grpc, Protocol.HTTP: _over_http}
