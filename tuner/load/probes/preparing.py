"""Prepares the models of a new server for load: first answers, batch sizes, cache contents.

Models load weights, compile or connect on their first request. perf_analyzer gives up if a whole
window passes without an answer, and how long a window must be is unknown before the first answer,
so the first answer is awaited before any load.

Then each batch size is sent until its answers are steady, see `tuner.load.probes.warming`.

Triton's response cache is filled with what the workload's traffic leaves in it in the long run.
The content of an LRU cache depends only on the order in which inputs were *last* used. So every
input that comes back is sent once, in that order, which takes as many computed answers as the cache
has room for; ordinary traffic would take many times as long to reach the rarest inputs.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from tuner.errors import LoadFailedError, ModelFailsError, SpecError
from tuner.load.client.calls import Reply, asking, reply_to
from tuner.load.perf_analyzer.outputs import bare_words
from tuner.load.probes.answers import unlike_config
from tuner.load.probes.warming import FirstCalls, warm_batches
from tuner.load.setup import Stream
from tuner.load.traffic.encoding import build
from tuner.load.traffic.inputs import MAX_STEPS
from tuner.reason import Fact, Reason, ReasonKind
from tuner.sentences import failed
from tuner.spec.units import count_text

#: A wait longer than this is reported.
QUIET_S = 2.0
#: Most instances that get a request at once; each may start with work of its own.
MOST_AT_ONCE = 16

#: Filling a cache takes no longer than this, give or take a few answers.
MAX_FILLING_S = 10.0
#: Requests in flight: enough for batches and several instances.
IN_FLIGHT = 32
#: Number of last inputs sent first, which show the size of an answer and how long it takes.
PROBES = 2 * IN_FLIGHT
#: Sends more inputs than seem to fit, as the size of an answer in the cache is only an estimate.
MARGIN = 1.2

_DEADLINE_S = 60.0


def await_first_answers(
    stream: Stream, config: Any, patience_s: float, note: Callable[[str], None]
) -> FirstCalls:
    """Sends one request per instance at once, awaits the answers, then sends each batch size.

    Args:
        config: The ``ModelConfig`` of its model, as it runs.
        patience_s: Longest wait for the first answer.
        note: Receives a sentence if that takes longer than `QUIET_S`.

    Raises:
        ModelFailsError: Every answer is an error; with the model's own words.
        LoadFailedError: No answer within ``patience_s``.
        ServerGoneError: The server died.
    """
    # Triton makes one instance if the config asks for none.
    instances = sum(max(g.count, 1) * max(len(g.gpus), 1) for g in config.instance_group) or 1
    count = min(instances, MOST_AT_ONCE)
    questions, model = _built([(stream, count)]), stream.requests.model
    if questions is None:
        return FirstCalls(model)  # only perf_analyzer can send these inputs
    with asking(stream.target.endpoints, QUIET_S) as method:
        begin = time.monotonic()
        sent = [
            s.target.future_by(method)(question, timeout=patience_s) for question, s in questions
        ]
        if not _all_done(sent, begin + QUIET_S):
            note(f"waiting for the first answer of {model}, up to {patience_s:g} s")
        replies = [_reply(call, model, patience_s) for call in sent]
        took_s = time.monotonic() - begin
    failures = [_failure(reply) for reply in replies]
    if failures and all(failures):
        raise _model_fails(failures[0])
    if took_s > QUIET_S:
        note(f"the first answer of {model} took {took_s:.1f} s")
    calls = warm_batches(stream, config, count, patience_s, took_s)
    answer = next((reply.answer for reply in replies if reply.answer is not None), None)
    if answer is None or stream.target.streamed:
        return calls
    return replace(calls, unlike_config=unlike_config(answer, config))


def seconds_for(wanted: Sequence[tuple[Stream, int]], patience_s: float) -> float | None:
    """Seconds until all of these simultaneous requests are answered.

    Args:
        wanted: Streams, each with its number of requests.
        patience_s: Longest wait.

    Returns:
        None if only perf_analyzer can send the inputs.

    Raises:
        ModelFailsError: An answer is an error; with the model's own words.
        LoadFailedError: A request was refused, or not answered within ``patience_s``.
        ServerGoneError: The server died.
    """
    questions = _built(wanted)
    if questions is None:
        return None
    with asking(wanted[0][0].target.endpoints, patience_s) as method:
        begin = time.monotonic()
        calls = [
            (stream.target.future_by(method)(question, timeout=patience_s), stream.requests.model)
            for question, stream in questions
        ]
        errors = [call.exception() for call, _ in calls]
        took_s = time.monotonic() - begin
    if any(errors):
        words = next(filter(None, (_failure(_reply(c, m, patience_s)) for c, m in calls)), "")
        if words:
            raise _model_fails(words)
        raise LoadFailedError("a queue refused some of the requests")
    return took_s


def _built(wanted: Sequence[tuple[Stream, int]]) -> list[tuple[bytes, Stream]] | None:
    """Requests, each with its stream; None if only perf_analyzer can send them."""
    try:
        return [
            (question, stream) for stream, count in wanted for question in stream.questions(count)
        ]
    except (LoadFailedError, SpecError):
        return None


def _all_done(calls: list[Any], until: float) -> bool:
    import grpc  # type: ignore[import-untyped]

    try:
        for call in calls:
            call.exception(timeout=max(until - time.monotonic(), 0.0))
    except grpc.FutureTimeoutError:
        return False
    return True


def _model_fails(words: str) -> ModelFailsError:
    return failed(ModelFailsError, Reason(ReasonKind.MODEL_FAILS, facts={"words": words}))


def _reply(call: Any, model: str, patience_s: float) -> Reply:
    facts: dict[str, Fact] = {"model": model, "patience_s": patience_s}
    late = Reason(ReasonKind.NO_FIRST_ANSWER, facts=facts)
    return reply_to(call, "the server is gone before the first answer", late)


def _failure(reply: Reply) -> str:
    """The model's own words instead of an answer; empty for an answer or a queue's refusal."""
    return "" if reply.refused else bare_words(reply.words)


@dataclass(frozen=True)
class Filling:
    """How many of the inputs that come back were sent to fill a cache.

    Attributes:
        sent: Number of inputs sent.
        of: Number of inputs that come back.
        seconds: Duration.
        short: Time ran out before the cache was full.
    """

    sent: int
    of: int
    seconds: float
    short: bool = False

    @property
    def sentence(self) -> str:
        if not self.of:
            return "the cache is left empty: no input of this workload comes back"
        end = "; there was no time for more" if self.short else ""
        inputs = f"{self.sent:,} of {count_text(self.of, 'input')}"
        return f"cache filled with {inputs} in {self.seconds:.1f} s{end}"


def together(fillings: Sequence[Filling]) -> Filling:
    """The sum of the fillings of several streams."""
    return Filling(
        sum(filling.sent for filling in fillings),
        sum(filling.of for filling in fillings),
        sum(filling.seconds for filling in fillings),
        any(filling.short for filling in fillings),
    )


def fill(stream: Stream, seed: int, size: int | None) -> Filling:
    """Brings an empty cache to its steady state, or as near as `MAX_FILLING_S` allows.

    Requests with several inputs are left out: it is too rare that all of them come again.

    Args:
        stream: The stream whose inputs are sent.
        seed: Seed of the order of inputs.
        size: Size of the cache in bytes; None if unknown.

    Raises:
        ServerGoneError: An answer did not come, or the server is gone.
    """
    try:
        lists = [shape.inputs.remembered(seed) for shape in stream.shapes]
        one = stream.form.batch_size == 1
        requests = [build(tensors, stream.form, MAX_STEPS) for tensors in lists if tensors and one]
    except (LoadFailedError, SpecError):  # sequences of steps: their model cannot have a cache
        requests = []
    if not requests:
        return Filling(0, 0, 0.0)
    with asking(stream.target.endpoints) as method:
        return ask_in_order(method, _side_by_side(requests), size)


def _side_by_side(lists: Sequence[Sequence[bytes]]) -> list[bytes]:
    """All requests, each list spread evenly over the whole length in its order."""
    placed = [
        ((k + 0.5) / len(requests), one) for requests in lists for k, one in enumerate(requests)
    ]
    return [one for _, one in sorted(placed, key=itemgetter(0))]


def ask_in_order(method: Any, requests: Sequence[bytes], size: int | None) -> Filling:
    """Sends as many of the last requests as the cache has room for.

    Raises:
        ServerGoneError: An answer did not come, or the server is gone.
    """
    begin = time.monotonic()
    probes = requests[-PROBES:]
    answer_bytes = _mean_answer_bytes(method, probes)
    answers_per_s = len(probes) / (time.monotonic() - begin)
    fitting = math.inf
    if size is not None and answer_bytes:
        fitting = MARGIN * size / answer_bytes + 1
    possible = max(answers_per_s * MAX_FILLING_S, PROBES)
    count = int(min(len(requests), fitting, possible))
    _mean_answer_bytes(method, requests[-count:])
    short = count < min(len(requests), fitting)
    return Filling(count, len(requests), time.monotonic() - begin, short)


def _mean_answer_bytes(method: Any, requests: Sequence[bytes]) -> float:
    """Sends all requests, in order; mean size of their answers in bytes."""
    calls: deque[Any] = deque()
    replies = []
    for request in requests:
        if len(calls) == IN_FLIGHT:
            replies.append(reply_to(calls.popleft(), "filling the cache"))
        calls.append(method.future(request, timeout=_DEADLINE_S))
    replies += [reply_to(call, "filling the cache") for call in calls]
    # Requests that the model refused are not in the cache, and never will be.
    answered = [len(reply.answer) for reply in replies if reply.answer]
    return sum(answered) / len(answered) if answered else 0.0
