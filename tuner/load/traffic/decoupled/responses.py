"""The record of responses to each request of a decoupled model, as they arrive.

Such a model sends any number of responses to a request, or none, and marks the end with a final
response, which may be empty. The record is pure: no clock, no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.load.client.job import Answers, Outcome, refusal_in
from tuner.load.latency import Observed
from tuner.load.quiet import within
from tuner.measurement.responses import ResponseFigures, figures_of
from tuner.reason import Reason, ReasonKind

#: Silence after the last response that means no more will come, unless an SLO allows for more.
SILENCE_S = 5.0

#: In place of a number of responses, for a request to a model that is not decoupled.
_ONCE = -1


@dataclass(frozen=True)
class Response:
    """One response of the server.

    Attributes:
        number: Number of the request that it belongs to; None for an unknown id.
        at_ns: When it arrived.
        final: It is the last response to its request.
        empty: It has no tensors.
        error: The server's words; empty without an error.
    """

    number: int | None
    at_ns: int
    final: bool = False
    empty: bool = False
    error: str = ""


@dataclass(frozen=True)
class ResponseEnd:
    """The end of a request, with its outcome and the server's words."""

    number: int
    outcome: Outcome
    words: str = ""


class ResponseRecord:
    """Keeps the record of requests, which are numbered from 0 in the order of sending."""

    def __init__(self) -> None:
        self._first_ns: list[int] = []
        self._last_ns: list[int] = []
        self._counts: list[int] = []
        self._open: dict[int, None] = {}  # in the order of sending
        self._failed: set[int] = set()  # a later answer to one of them does not count
        self._doubled: set[int] = set()

    def add_request(self, *, streamed: bool = True) -> int:
        """The number of the next request; not ``streamed``: its model is not decoupled."""
        number = len(self._first_ns)
        self._first_ns.append(0)
        self._last_ns.append(0)
        self._counts.append(0 if streamed else _ONCE)
        if streamed:
            self._open[number] = None
        return number

    def receive(self, response: Response) -> ResponseEnd | None:
        """Adds a response; returns the end of its request, if the response ends it."""
        number = response.number
        if number is None or not 0 <= number < len(self._first_ns):
            if self._first_ns:  # its request is unknown: it counts against the latest one
                self._doubled.add(next(reversed(self._open), len(self._first_ns) - 1))
            return None
        if number in self._failed:
            return None
        if number not in self._open:
            self._doubled.add(number)
            return None
        if response.error:
            return self.failed(number, refusal_in(response.error) or Outcome.FAILED, response.error)
        self._last_ns[number] = response.at_ns
        self._counts[number] += not response.empty
        if not response.empty or response.final:
            self._first_ns[number] = self._first_ns[number] or response.at_ns
        if not response.final:
            return None
        self._open.pop(number, None)
        return ResponseEnd(number, Outcome.ANSWERED)

    def failed(self, number: int, outcome: Outcome, words: str) -> ResponseEnd:
        """Ends a request without its final response; later responses to it do not count."""
        self._open.pop(number, None)
        self._failed.add(number)
        return ResponseEnd(number, outcome, words)

    def __len__(self) -> int:
        return len(self._first_ns)

    def has_begun(self, number: int) -> bool:
        """Whether a request has received a response."""
        return self._first_ns[number] > 0

    @property
    def begun(self) -> frozenset[int]:
        """Requests that have received a response but not the final one."""
        return frozenset(filter(self.has_begun, [*self._open]))  # another thread may end one

    def silent(self, now_ns: int, silence_ns: int) -> Iterator[ResponseEnd]:
        """Gives up requests that have begun but received no response for this long."""
        for number in sorted(self.begun):
            if now_ns - self._last_ns[number] >= silence_ns:
                yield self.failed(number, Outcome.INCOMPLETE, "")

    def account(self, answers: Answers, silence_ns: int, offset_ns: int) -> Answers:
        """Completes the record of the run with what is known about responses.

        A request without any response is given up too, if requests sent much later were answered.
        An incomplete request counts as answered at its last response.

        Args:
            answers: The record so far, of the same requests.
            silence_ns: Time without a response after which a request is given up.
            offset_ns: From the clock of the responses to that of ``answers``.
        """
        unsent = answers.numbers.size - len(self._first_ns)
        first_ns, last_ns, counts = (
            np.append(np.array(recorded, np.int64), np.zeros(unsent, np.int64))
            for recorded in (self._first_ns, self._last_ns, self._counts)
        )
        outcomes, answered_ns = answers.outcomes.copy(), answers.answered_ns.copy()
        ended_ns = np.where(last_ns > 0, last_ns + offset_ns, answers.sent_ns)
        done = outcomes == Outcome.ANSWERED
        latest_ns = int(answers.sent_ns[done].max(initial=0)) - silence_ns
        passed_over = (outcomes == Outcome.UNANSWERED) & (answers.sent_ns < latest_ns)
        outcomes[passed_over & (first_ns == 0) & (counts != _ONCE)] = Outcome.INCOMPLETE
        incomplete = outcomes == Outcome.INCOMPLETE
        answered_ns[incomplete] = ended_ns[incomplete]
        doubled = np.array(sorted(self._doubled), np.int64)
        outcomes[doubled] = Outcome.DOUBLED
        answered_ns[doubled] = np.maximum(answered_ns[doubled], ended_ns[doubled])
        return replace(
            answers,
            outcomes=outcomes,
            answered_ns=answered_ns,
            first_ns=np.where(first_ns > 0, first_ns + offset_ns, 0),
            response_counts=counts,
        )


def until_first(answers: Answers, which: npt.NDArray[np.bool_] | None = None) -> Answers:
    """The record of these requests, with each first response as the answer.

    A request that failed later, or was never completed, still counts as failed.
    """
    begun = (answers.first_ns > 0) & (answers.outcomes <= Outcome.ANSWERED)
    if which is not None:
        begun &= which
    return replace(
        answers,
        answered_ns=np.where(begun, answers.first_ns, answers.answered_ns),
        outcomes=np.where(begun, np.int8(Outcome.ANSWERED), answers.outcomes),
    )


def response_figures(answers: Answers, first: Observed, last: Observed) -> ResponseFigures:
    """Figures of a window, from observations with the first and with the last response."""
    ended_s = (answers.answered_ns - last.begin_ns) / 1e9
    inside = (answers.outcomes == Outcome.ANSWERED) & within(ended_s, last.quiet)
    return figures_of(first.latencies_us, last.latencies_us, answers.response_counts[inside])


_BROKEN = {
    Outcome.INCOMPLETE: ReasonKind.NO_FINAL_RESPONSE,
    Outcome.DOUBLED: ReasonKind.MORE_AFTER_FINAL,
}


def warnings_of(outcomes: Sequence[int] | npt.NDArray[np.int8]) -> Iterator[Reason]:
    """A warning for each way in which a decoupled model violated the protocol."""
    values = np.asarray(outcomes)
    for outcome, kind in _BROKEN.items():
        if count := int((values == outcome).sum()):
            yield Reason(kind, facts={"broken_count": count, "request_count": values.size})
