"""What each request of a decoupled model was answered with, by the responses as they come in.

Such a model answers a request as often as it likes, or not at all, and says when it is done: the
final response, which may be empty. Pure: no clock, no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.load.client.job import Answers, Outcome, refusal_in
from tuner.load.latency import Observed, within
from tuner.measurement.responses import ResponseFigures, figures_of
from tuner.reason import Reason, ReasonKind

#: So long after its last response nothing more is expected, unless an SLO allows for more.
SILENCE_S = 5.0

#: Instead of a number of responses, of a request that is answered once.
_ONCE = -1


@dataclass(frozen=True)
class Response:
    """One response of the server.

    Attributes:
        number: The request that it says it answers; None where none was asked.
        final: The last one of its request.
        empty: Without tensors.
        error: The server's words.
    """

    number: int | None
    at_ns: int
    final: bool = False
    empty: bool = False
    error: str = ""


@dataclass(frozen=True)
class ResponseEnd:
    """A request that is over."""

    number: int
    outcome: Outcome
    words: str = ""


class ResponseRecord:
    """Keeps the record of requests, which are numbered from 0 as they are sent."""

    def __init__(self) -> None:
        self._first_ns: list[int] = []
        self._last_ns: list[int] = []
        self._counts: list[int] = []
        self._open: dict[int, None] = {}  # in the order of sending
        self._failed: set[int] = set()  # which may yet be answered, to no avail
        self._doubled: set[int] = set()

    def add_request(self, *, streamed: bool = True) -> int:
        """The number of the request that is sent now; not ``streamed``: it is answered once."""
        number = len(self._first_ns)
        self._first_ns.append(0)
        self._last_ns.append(0)
        self._counts.append(0 if streamed else _ONCE)
        if streamed:
            self._open[number] = None
        return number

    def heard(self, response: Response) -> ResponseEnd | None:
        """Notes a response; returns how its request ended, if it did."""
        number = response.number
        if number is None or not 0 <= number < len(self._first_ns):
            if self._first_ns:  # nobody knows whose: it is held against the latest request
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
        """A request ends without its final response, and what comes of it later is nothing."""
        self._open.pop(number, None)
        self._failed.add(number)
        return ResponseEnd(number, outcome, words)

    def __len__(self) -> int:
        return len(self._first_ns)

    def has_begun(self, number: int) -> bool:
        """Whether a request has a response."""
        return self._first_ns[number] > 0

    @property
    def begun(self) -> frozenset[int]:
        """Requests that were answered, and not for the last time."""
        return frozenset(filter(self.has_begun, [*self._open]))  # another thread may end one

    def silent(self, now_ns: int, silence_ns: int) -> Iterator[ResponseEnd]:
        """Gives up the begun requests of which nothing was heard for so long."""
        for number in sorted(self.begun):
            if now_ns - self._last_ns[number] >= silence_ns:
                yield self.failed(number, Outcome.INCOMPLETE, "")

    def account(self, answers: Answers, silence_ns: int, offset_ns: int) -> Answers:
        """The record of the run, of the same requests, with what is known here.

        A request that got no response, while others sent so much later were answered, is given up
        as well. Of one that is incomplete its last response tells when.

        Args:
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
    """The answers to these requests, as if the first response were the answer.

    A request that failed later on, or was never completed, has failed all the same.
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
    """The figures of a window, by what was observed of it until the first and the last response."""
    ended_s = (answers.answered_ns - last.begin_ns) / 1e9
    inside = (answers.outcomes == Outcome.ANSWERED) & within(ended_s, last.quiet)
    return figures_of(first.latencies_us, last.latencies_us, answers.response_counts[inside])


_BROKEN = {
    Outcome.INCOMPLETE: ReasonKind.NO_FINAL_RESPONSE,
    Outcome.DOUBLED: ReasonKind.MORE_AFTER_FINAL,
}


def warnings_of(outcomes: Sequence[int] | npt.NDArray[np.int8]) -> Iterator[Reason]:
    """Each way in which a decoupled model broke its word."""
    values = np.asarray(outcomes)
    for outcome, kind in _BROKEN.items():
        if count := int((values == outcome).sum()):
            yield Reason(kind, facts={"broken_count": count, "request_count": values.size})
