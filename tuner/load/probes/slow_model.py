"""Requests asked without a load generator: how long a model takes that is slow.

perf_analyzer gives up when a whole window passes without an answer, and how long a window must be
is not known before the first answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tuner.errors import LoadFailedError, ModelFailsError, SpecError
from tuner.load.client.channel_options import asking
from tuner.load.probes.first_answers import failure_of
from tuner.load.traffic.encoding import RequestForm, build
from tuner.load.traffic.inputs import InputFiles

#: Requests to a model, what they carry, and how many.
Some = tuple[RequestForm, InputFiles, int]


def seconds_for(address: str, asked: Sequence[Some], patience_s: float) -> float | None:
    """How long requests, asked at once, take until the last is answered.

    Args:
        address: host:port of the gRPC endpoint.
        asked: Some of each stream.
        patience_s: How long to wait for each answer.

    Returns:
        Seconds; None for inputs that only perf_analyzer can send.

    Raises:
        ModelFailsError: An answer is an error; with the model's own words.
        LoadFailedError: A request was refused, or not answered within ``patience_s``.
        ServerGoneError: The server died.
    """
    try:
        questions = [
            (question, form.model)
            for form, inputs, count in asked
            for question in build(inputs.first(max(count, 1) * form.batch_size), form, count)
        ]
    except (LoadFailedError, SpecError):
        return None
    with asking(address, patience_s) as method:
        begin = time.monotonic()
        calls = [(method.future(q, timeout=patience_s), model) for q, model in questions]
        errors = [call.exception() for call, _ in calls]
        took_s = time.monotonic() - begin
    if any(errors):
        words = next(filter(None, (failure_of(c, m, patience_s) for c, m in calls)), "")
        if words:
            raise ModelFailsError(f"the model fails: {words}")
        raise LoadFailedError("a queue refused some of the requests")
    return took_s
