"""The first answers of a model that was just loaded, which may take long.

Models load weights, compile or connect with their first request. perf_analyzer gives up when a
whole window passes without an answer, so the first one is waited for before any load.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]

from tuner.errors import LoadFailedError, ModelFailsError, ServerGoneError, SpecError
from tuner.load.client.channel_options import asking, is_refusal
from tuner.load.perf_analyzer.error_text import bare_words
from tuner.load.probes.batch_sizes import warm_batches
from tuner.load.traffic.encoding import RequestForm, build
from tuner.load.traffic.inputs import InputFiles

#: A wait longer than this is reported.
QUIET_S = 2.0
#: At most this many instances get a request at once; each may begin with work of its own.
MOST_AT_ONCE = 16


def await_first_answers(
    address: str,
    form: RequestForm,
    inputs: InputFiles,
    config: Any,
    patience_s: float,
    note: Callable[[str], None],
) -> None:
    """Asks as many requests at once as there are instances, and waits for their answers.

    Then each batch size that may come up under load is asked once, see `probes.batch_sizes`.

    Args:
        address: host:port of the gRPC endpoint.
        form: Of requests to the model.
        inputs: What they carry.
        config: ``ModelConfig`` the server runs.
        patience_s: How long to wait.
        note: Receives a sentence when it takes longer than `QUIET_S`.

    Raises:
        ModelFailsError: Every answer is an error; with the model's own words.
        LoadFailedError: No answer within ``patience_s``.
        ServerGoneError: The server died.
    """
    count = min(_instances(config), MOST_AT_ONCE)
    try:
        questions = build(inputs.first(count * form.batch_size), form, count)
    except (LoadFailedError, SpecError):
        return  # inputs that only perf_analyzer can send
    begin = time.monotonic()
    with asking(address) as method:
        calls = [method.future(question, timeout=patience_s) for question in questions]
        if not _all_done(calls, begin + QUIET_S):
            note(f"waiting for the first answer of {form.model}, up to {patience_s:g} s")
        failures = [failure_of(call, form.model, patience_s) for call in calls]
    took_s = time.monotonic() - begin
    if failures and all(failures):
        raise ModelFailsError(f"the model fails: {failures[0]}")
    if took_s > QUIET_S:
        note(f"its first answer took {took_s:.1f} s")
    warm_batches(address, form, inputs, config, count)


def _instances(config: Any) -> int:
    """At least one, as Triton makes one where none is asked for."""
    return sum(max(g.count, 1) * max(len(g.gpus), 1) for g in config.instance_group) or 1


def _all_done(calls: list[Any], until: float) -> bool:
    try:
        for call in calls:
            call.exception(timeout=max(until - time.monotonic(), 0.0))
    except grpc.FutureTimeoutError:
        return False
    return True


def failure_of(call: Any, model: str, patience_s: float) -> str:
    """The model's own words instead of an answer; empty with one, or where a queue refused it.

    Raises:
        LoadFailedError: No answer within ``patience_s``.
        ServerGoneError: The server died.
    """
    error = call.exception()
    if error is None:
        return ""
    words, code = str(error.details()), error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        raise LoadFailedError(
            f"{model} gave no answer within {patience_s:g} s (server.load_timeout)"
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        if is_refusal(words):
            return ""
        raise ServerGoneError(f"the server is gone before the first answer: {words}")
    return bare_words(words)
