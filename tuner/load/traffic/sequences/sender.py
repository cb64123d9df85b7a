"""Sends requests of sequences, each when it is due and its predecessor has been answered.

The requests after a failed one are not sent and fail too: the user has lost the sequence. If the
end of the load or a failure cuts a sequence short, one more request ends it, so that the server
frees its slot.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from tuner.load.client.calls import Done
from tuner.load.client.job import Answers, Outcome, ProcessPart
from tuner.load.traffic.sequences.pace import (
    Numbers,
    SequenceIds,
    counted_in,
    last_of_each,
    marks,
    out_of_order,
)

#: Called once per request with its outcome, the server's words without an answer, and the answer.
Answered = Callable[[Outcome, str, bytes], None]
#: Time to end sequences in.
_PATIENCE_S, _POLL_S = 10.0, 0.005
_REFUSED = (Outcome.TIMED_OUT, Outcome.QUEUE_FULL)
#: Triton's words (sequence_batch_scheduler.cc) for an unknown or forgotten sequence.
_UNKNOWN = "must specify the START flag"
_FORGOTTEN = "the server had dropped the sequence after max_sequence_idle_microseconds"


@dataclass(frozen=True)
class SequenceSettings:
    """How requests are marked as parts of sequences.

    Attributes:
        first_id: Added to the number of each sequence.
        count_output: Output in which the model counts the requests of a sequence, from 1; "" if it
            does not count them.
    """

    first_id: int
    count_output: str = ""


class AnswerCalls(Protocol):
    """Sends a request now; `ask` also passes its answer on."""

    def send(self, request: bytes, done: Done) -> None: ...

    def ask(self, request: bytes, answered: Answered) -> None: ...


@dataclass
class _Course:
    """The state of a sequence; ``ended``: no more requests of it are sent."""

    number: int
    ids: SequenceIds
    sent: int = 0
    waiting: bool = False
    ended: bool = False
    broken: str = ""
    last_request: bytes = b""
    queued: deque[tuple[bytes, Done, bool]] = field(default_factory=deque)


class SequenceSender:
    """Sends the requests of a load in the order of their sequences.

    Args:
        calls: Sends single requests.
        settings: How requests are marked.
        numbers: The sequence of each request, in the order of calls of `send`; None: each request
            is a sequence of its own.
        ids: Type of id of each request's model, in the same order; repeated when exhausted. None:
            the model takes no sequences, so that the request is sent unmarked, whatever its number.
    """

    def __init__(
        self,
        calls: AnswerCalls,
        settings: SequenceSettings,
        numbers: Numbers | None,
        ids: Sequence[SequenceIds | None],
    ) -> None:
        self._calls = calls
        self._settings = settings
        self._numbers = None if numbers is None else numbers.tolist()
        self._last = None if numbers is None else last_of_each(numbers).tolist()
        self._ids = ids
        self._sent = 0
        self._courses: dict[int, _Course] = {}
        self._ending = False

    def send(self, request: bytes, done: Done) -> None:
        """Takes the next due request of the load; ``done`` as in `GrpcCalls.send`."""
        k, self._sent = self._sent, self._sent + 1
        ids = self._ids[k % len(self._ids)]
        if ids is None:
            self._calls.send(request, done)
            return
        nth = k if self._numbers is None else self._numbers[k]
        number = (self._settings.first_id + nth) % (1 << 31)
        course = self._courses.get(number)
        if course is None:
            course = self._courses[number] = _Course(number, ids)
        if course.broken:
            done(Outcome.FAILED, course.broken)
            return
        course.queued.append((request, done, self._last is None or self._last[k]))
        self._go_on(course)

    async def end(self, patience_s: float = _PATIENCE_S) -> int:
        """Ends each sequence in progress; returns how many could not be ended in time."""
        self._ending = True
        courses = [course for course in self._courses.values() if course.sent]
        for course in courses:
            course.queued.clear()
            self._go_on(course)
        until = time.monotonic() + patience_s
        while (left := sum(c.waiting for c in courses)) and time.monotonic() < until:
            await asyncio.sleep(_POLL_S)
        return left

    def _go_on(self, course: _Course) -> None:
        """Sends the next request of a sequence, if one is waiting."""
        if course.waiting or course.ended:
            return
        if course.queued:
            request, done, last = course.queued.popleft()
            course.sent += 1
            course.last_request = request
            answered = partial(self._answered, course, course.sent, done)
            self._ask(course, answered, start=course.sent == 1, end=last)
        elif self._ending or course.broken:
            self._ask(course, partial(self._closed, course), start=False, end=True)

    def _ask(self, course: _Course, answered: Answered, *, start: bool, end: bool) -> None:
        course.waiting, course.ended = True, end
        mark = marks(course.number, course.ids, start=start, end=end)
        self._calls.ask(course.last_request + mark, answered)

    def _answered(
        self,
        course: _Course,
        place: int,
        done: Done,
        outcome: Outcome,
        words: str,
        answer: bytes,
    ) -> None:
        course.waiting = False
        output = self._settings.count_output
        if outcome is Outcome.ANSWERED and output:
            words = out_of_order(counted_in(answer, output), place, output)
            outcome = Outcome.FAILED if words else outcome
        elif outcome is not Outcome.ANSWERED:
            words += f" ({_FORGOTTEN})" if place > 1 and _UNKNOWN in words else ""
            self._break(course, words)
            course.ended |= outcome in _REFUSED and place == 1  # it has no slot
        if course.ended and not course.broken:
            del self._courses[course.number]  # no request follows
        done(outcome, words)
        self._go_on(course)

    def _break(self, course: _Course, words: str) -> None:
        course.broken = f"not sent, since an earlier request of its sequence failed: {words}"
        while course.queued:
            _, done, _ = course.queued.popleft()
            done(Outcome.FAILED, course.broken)

    def _closed(self, course: _Course, outcome: Outcome, words: str, answer: bytes) -> None:
        course.waiting = False


class SequenceCaller:
    """Sends requests with a `SequenceSender`; see `tuner.load.client.calls.Caller`."""

    def __init__(self, calls: Any, sender: SequenceSender) -> None:
        self._calls, self._sender = calls, sender
        self.connect, self.drain, self.close = calls.connect, calls.drain, calls.close
        self.send = sender.send

    async def account(self, answers: Answers, offset_ns: int) -> Answers:
        """Ends sequences in progress, unless the server is gone."""
        del offset_ns
        return answers if answers.lost else replace(answers, unended=await self._sender.end())


def sequence_caller(part: ProcessPart, facts: Mapping[str, Any]) -> SequenceCaller:
    calls = part.calls()
    ids = [None if one is None else SequenceIds(one) for one in facts["ids"]]
    each = [ids[place] for place in part.sent.order.tolist()]
    settings = SequenceSettings(facts["first_id"], facts["count_output"])
    return SequenceCaller(calls, SequenceSender(calls, settings, part.sent.sequences, each))
