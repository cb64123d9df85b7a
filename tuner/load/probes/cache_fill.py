"""Fills Triton's response cache with what the workload's traffic leaves there in the long run.

What an LRU cache holds depends only on the order in which inputs were *last* asked for. So every
input that comes back is asked once, in that order, which takes as many computed answers as the
cache has room for; traffic as it comes would take many times as long to reach the rarest.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import LoadFailedError, SpecError
from tuner.load.client.channel_options import asking, reply_to
from tuner.load.traffic.encoding import RequestForm, build
from tuner.load.traffic.inputs import MAX_STEPS, InputFiles
from tuner.server.server import Endpoints

#: Asking takes no longer than this, give or take a few answers.
MAX_FILLING_S = 10.0
#: Requests in flight: enough for batches and several instances.
IN_FLIGHT = 32
#: So many of the last inputs are asked first, to see how long answers are and how long they take.
PROBES = 2 * IN_FLIGHT
#: More answers are asked for than seem to fit, as their size in the cache is not known exactly.
MARGIN = 1.2

_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Filling:
    """How many of the inputs that come back in this workload were asked for.

    ``short``: it had to end before the cache was full.
    """

    asked: int
    of: int
    seconds: float
    short: bool = False

    @property
    def sentence(self) -> str:
        if not self.of:
            return "the cache is left empty: no input of this workload comes back"
        end = ", which is all there was time for" if self.short else ""
        return f"cache filled with {self.asked} of {self.of} inputs in {self.seconds:.1f} s{end}"


def together(fillings: Sequence[Filling]) -> Filling:
    """The sum of what was done for several streams."""
    return Filling(
        sum(filling.asked for filling in fillings),
        sum(filling.of for filling in fillings),
        sum(filling.seconds for filling in fillings),
        any(filling.short for filling in fillings),
    )


def fill(
    endpoints: Endpoints, form: RequestForm, inputs: InputFiles, seed: int, size: int | None
) -> Filling:
    """Brings an empty cache to its steady state, or as near as `MAX_FILLING_S` allows.

    ``seed`` decides the order of inputs; ``size`` is the cache's in bytes, None when not known.

    Raises:
        ServerGoneError: No answer, or no server.
    """
    requests = _requests(form, inputs, seed)
    if not requests:
        return Filling(0, 0, 0.0)
    with asking(endpoints) as method:
        return ask_in_order(method, requests, size)


def ask_in_order(method: Any, requests: Sequence[bytes], size: int | None) -> Filling:
    """Asks as many of the last requests as the cache has room for.

    Raises:
        ServerGoneError: No answer, or no server.
    """
    begin = time.monotonic()
    probes = requests[-PROBES:]
    answer_bytes = _asked(method, probes)
    answers_per_s = len(probes) / (time.monotonic() - begin)
    fitting = math.inf
    if size is not None and answer_bytes:
        fitting = MARGIN * size / answer_bytes + 1
    possible = max(answers_per_s * MAX_FILLING_S, PROBES)
    count = int(min(len(requests), fitting, possible))
    _asked(method, requests[-count:])
    short = count < min(len(requests), fitting)
    return Filling(count, len(requests), time.monotonic() - begin, short)


def _requests(form: RequestForm, inputs: InputFiles, seed: int) -> Sequence[bytes]:
    """None where requests hold several inputs: that all of them come again is too rare."""
    try:
        path = inputs.remembered(seed) if form.batch_size == 1 else None
        return [] if path is None else build(path, form, MAX_STEPS)
    except (LoadFailedError, SpecError):  # sequences of steps; their model cannot have a cache
        return []


def _asked(method: Any, requests: Sequence[bytes]) -> float:
    """Sends all, in order; mean size of the answers in bytes."""
    calls: deque[Any] = deque()
    replies = []
    for request in requests:
        if len(calls) == IN_FLIGHT:
            replies.append(reply_to(calls.popleft(), "filling the cache"))
        calls.append(method.future(request, timeout=_DEADLINE_S))
    replies += [reply_to(call, "filling the cache") for call in calls]
    # What the model refused is not in the cache, and never will be.
    answered = [len(reply.answer) for reply in replies if reply.answer]
    return sum(answered) / len(answered) if answered else 0.0
