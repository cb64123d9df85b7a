"""A single request to a decoupled model outside of a load, as a future of gRPC."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event, Thread
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from tuner.load.client.job import Outcome, refusal_in
from tuner.load.traffic.decoupled.responses import SILENCE_S, Response, ResponseEnd, ResponseRecord

INFER = "/inference.GRPCInferenceService/ModelStreamInfer"

#: Without it, Triton sends no final response if that has no tensors.
_EMPTY_FINAL = "triton_enable_empty_final_response"
_FINAL = "triton_final_response"
LOOKS_S = 0.05
#: Digits of a request's number; numbers of this program have fewer.
_MOST_DIGITS = 18


def numbered(request: bytes, number: int) -> bytes:
    """A serialized request with this number as its id, which asks for its final response."""
    more = service_pb2.ModelInferRequest(id=str(number))
    more.parameters[_EMPTY_FINAL].bool_param = True
    # protobuf merges the fields of concatenated messages
    return request + bytes(more.SerializeToString())


def response_of(message: bytes, at_ns: int) -> Response:
    """Reads a message from a stream; a message that is not a response belongs to no request."""
    try:
        response = service_pb2.ModelStreamInferResponse.FromString(message)
    except DecodeError as error:
        return Response(None, at_ns, error=f"the response cannot be read: {error}")
    answer = response.infer_response
    return Response(
        int(answer.id) if answer.id.isdecimal() and len(answer.id) <= _MOST_DIGITS else None,
        at_ns,
        final=answer.parameters[_FINAL].bool_param,
        empty=not answer.outputs,
        error=response.error_message,
    )


class StreamedError(grpc.RpcError):  # type: ignore[misc]
    """The error that the server or the model sent instead of all responses."""


class StreamedCall:
    """One request in its own stream; it ends with its final response, or fails.

    Args:
        timeout: Seconds after which it fails if it has not ended.
        metadata: Headers of the request.
    """

    def __init__(
        self, channel: Any, request: bytes, timeout: float, metadata: Sequence[tuple[str, str]]
    ) -> None:
        self._record, self._ended = ResponseRecord(), Event()
        self._answer = b""
        self._error: Exception | None = None
        self._code, self._words = grpc.StatusCode.OK, ""
        message = iter([numbered(request, self._record.add_request())])
        self._call = channel.stream_stream(INFER)(message, timeout=timeout, metadata=metadata)
        Thread(target=self._receive, daemon=True).start()

    def result(self) -> bytes:
        """The first response; raises gRPC's error if the request failed."""
        error = self.exception()
        if error is not None:
            raise error
        return self._answer

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits for the end; raises gRPC's FutureTimeoutError if it does not come in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._ended.wait(LOOKS_S):
            for ending in self._record.silent(time.monotonic_ns(), round(SILENCE_S * 1e9)):
                self._end(ending)
            if until is not None and time.monotonic() > until:
                raise grpc.FutureTimeoutError
        return self._error

    def code(self) -> Any:
        return self._code

    def details(self) -> str:
        return self._words

    def _receive(self) -> None:
        try:
            for message in self._call:
                response = response_of(message, time.monotonic_ns())
                if response.number is None:
                    words = response.error or "a response under an unknown id"
                    self._end(self._record.failed(0, Outcome.FAILED, words))
                    return
                self._answer = self._answer or message
                if (ending := self._record.receive(response)) is not None:
                    self._end(ending)
        except grpc.RpcError as error:
            if not self._ended.is_set():
                self._fail(error.code(), str(error.details()))
        except Exception as error:  # otherwise `result` would wait forever
            self._fail(grpc.StatusCode.UNKNOWN, f"its answer cannot be read: {error}")
        if not self._ended.is_set():
            self._fail(grpc.StatusCode.UNAVAILABLE, "the server ended the stream")

    def _end(self, ending: ResponseEnd) -> None:
        if ending.outcome is Outcome.ANSWERED:
            self._ended.set()
        elif ending.outcome is Outcome.INCOMPLETE:
            words = (
                f"no final response within {SILENCE_S:g} s of its last one: a decoupled model "
                "must end each answer with TRITONSERVER_RESPONSE_COMPLETE_FINAL"
            )
            self._fail(grpc.StatusCode.UNKNOWN, words)
        elif refusal_in(ending.words):
            self._fail(grpc.StatusCode.UNAVAILABLE, ending.words)
        else:
            self._fail(grpc.StatusCode.UNKNOWN, ending.words)
        self._call.cancel()

    def _fail(self, code: Any, words: str) -> None:
        self._error, self._code, self._words = StreamedError(words), code, words
        self._ended.set()
