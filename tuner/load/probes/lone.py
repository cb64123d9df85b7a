"""Whether single requests are served once an overload has ended.

A queue policy that has refused requests may keep refusing: Triton's batcher then checks its queue
only twice a second, and by then a lone request in the queue may have timed out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tuner.errors import LoadFailedError
from tuner.load.client.calls import asking, reply_to
from tuner.load.setup import Stream
from tuner.reason import Reason
from tuner.spec.units import digits

REQUEST_COUNT = 30


@dataclass(frozen=True)
class LoneRequests:
    """Requests sent one after the other.

    Attributes:
        asked: Number of requests sent.
        served: Number of requests answered without error.
        slowest_us: Longest latency of those served; None if none was.
    """

    asked: int
    served: int
    slowest_us: float | None = None

    @property
    def text(self) -> str:
        said = f"{self.served} of {self.asked} lone requests were served"
        if self.slowest_us is None:
            return said
        return f"{said}, each within {digits(self.slowest_us / 1e3)} ms"


def ask_alone(stream: Stream, patience_s: float) -> LoneRequests:
    """Sends one request at a time; stops at the first one without an answer in time.

    Args:
        stream: The stream whose first input is sent.
        patience_s: Longest wait for an answer.

    Raises:
        ServerGoneError: The server died.
    """
    took_s: list[float] = []
    late = Reason.of_text("no answer in time")
    with asking(stream.target.endpoints, patience_s) as method:
        for question in stream.questions(REQUEST_COUNT):
            begin = time.monotonic()
            call = stream.target.future_by(method)(question, timeout=patience_s)
            try:
                reply = reply_to(call, "the server is gone after an overload", late)
            except LoadFailedError:
                break
            if reply.answer is not None:
                took_s.append(time.monotonic() - begin)
    return LoneRequests(REQUEST_COUNT, len(took_s), 1e6 * max(took_s) if took_s else None)
