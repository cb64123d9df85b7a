"""Requests asked without a load generator: how long a model takes that is slow.

perf_analyzer gives up when a whole window passes without an answer, and how long a window must be
is not known before the first answer.
"""

from __future__ import annotations

import time

import grpc  # type: ignore[import-untyped]

from tuner.errors import LoadFailedError, ModelFailsError, SpecError
from tuner.load.client.channel_options import INFER, channel_options
from tuner.load.probes.first_answers import failure_of
from tuner.load.traffic.encoding import RequestForm, build
from tuner.load.traffic.inputs import InputFiles


def seconds_for(
    address: str, form: RequestForm, inputs: InputFiles, count: int, patience_s: float
) -> float | None:
    """How long ``count`` requests, asked at once, take until the last is answered.

    Args:
        address: host:port of the gRPC endpoint.
        form: Of requests to the model.
        inputs: What they carry.
        count: Requests.
        patience_s: How long to wait for each answer.

    Returns:
        Seconds; None for inputs that only perf_analyzer can send.

    Raises:
        ModelFailsError: An answer is an error; with the model's own words.
        LoadFailedError: A request was refused, or not answered within ``patience_s``.
        ServerGoneError: The server died.
    """
    try:
        questions = build(inputs.first(count * form.batch_size), form, count)
    except (LoadFailedError, SpecError):
        return None
    with grpc.insecure_channel(address, options=channel_options(address)) as channel:
        method = channel.unary_unary(INFER)
        _connected(channel, patience_s)
        begin = time.monotonic()
        calls = [method.future(question, timeout=patience_s) for question in questions]
        errors = [call.exception() for call in calls]
        took_s = time.monotonic() - begin
    if any(errors):
        words = next(filter(None, (failure_of(c, form.model, patience_s) for c in calls)), "")
        if words:
            raise ModelFailsError(f"the model fails: {words}")
        raise LoadFailedError("a queue refused some of the requests")
    return took_s


def _connected(channel: grpc.Channel, patience_s: float) -> None:
    """So that the time it takes is not the model's; who cannot connect says so when asked."""
    try:
        grpc.channel_ready_future(channel).result(timeout=patience_s)
    except grpc.FutureTimeoutError:
        return
