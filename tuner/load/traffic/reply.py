"""Outputs in a server's serialized answer."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


class UnreadableAnswerError(ValueError):
    """An answer is not protobuf, or its contents do not fit its shapes and types."""


def outputs_in(answer: bytes) -> dict[str, npt.NDArray[Any]]:
    """The outputs of a serialized ``ModelInferResponse``; strings are arrays of bytes.

    Raises:
        UnreadableAnswerError: The answer cannot be read.
    """
    from tritonclient.grpc import InferResult, service_pb2

    try:
        response = service_pb2.ModelInferResponse.FromString(answer)
        result = InferResult(response)
        outputs = {output.name: result.as_numpy(output.name) for output in response.outputs}
    except Exception as error:  # protobuf, struct and NumPy raise any kind for untrusted bytes
        raise UnreadableAnswerError(f"the answer cannot be read: {error}") from error
    if lacking := [name for name, values in outputs.items() if values is None]:
        raise UnreadableAnswerError(f"the answer cannot be read: {lacking[0]} has no contents")
    return outputs
