"""Requests of sequences: each is sent when it is due and the one before it has its answer.

What follows a request that failed is not sent and fails with it: its sequence is lost to the user.
A sequence that the end of the load, or a failure, cuts short is ended by one more request, so that
the server's slot for it is free again.
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

#: Called once for a request, with the server's words where it was not answered, or the answer.
Answered = Callable[[Outcome, str, bytes], None]
#: For sequences to be ended in.
_PATIENCE_S, _POLL_S = 10.0, 0.005
_REFUSED = (Outcome.TIMED_OUT, Outcome.QUEUE_FULL)
#: Triton's words (sequence_batch_scheduler.cc) for a sequence it does not know, or no more.
_UNKNOWN = "must specify the START flag"
_FORGOTTEN = "the server had dropped the sequence after max_sequence_idle_microseconds"


@dataclass(frozen=True)
class SequenceSettings:
    """What makes requests ones of sequences.

    Attributes:
        first_id: Added to the number of each.
        count_output: Output in which the model counts the requests of a sequence, from 1; "" where
            none does.
    """

    first_id: int
    count_output: str = ""


class Asks(Protocol):
    """Sends a request now; `ask` tells its answer too."""

    def send(self, request: bytes, done: Done) -> None: ...

    def ask(self, request: bytes, answered: Answered) -> None: ...


@dataclass
class _Course:
    """How far a sequence has come; ``ended``: nothing of it is to be sent any more."""

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
        numbers: The sequence of each request, in the order in which `send` is called; None: each
            is a sequence of its own.
        ids: How the id of each is told, likewise; used again and again. None: its model takes no
            sequences, so that it is sent as it is, and has any number.
    """

    def __init__(
        self,
        calls: Asks,
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
        """Takes the next request of the load, which is due; ``done`` as with `GrpcCalls.send`."""
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
        """Ends each sequence that is under way; how many could not be ended in time."""
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
        """Sends what is to be sent next of a sequence, if anything is."""
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
            del self._courses[course.number]  # nothing of it comes any more
        done(outcome, words)
        self._go_on(course)

    def _break(self, course: _Course, words: str) -> None:
        course.broken = f"not sent, since a request before it in its sequence failed: {words}"
        while course.queued:
            _, done, _ = course.queued.popleft()
            done(Outcome.FAILED, course.broken)

    def _closed(self, course: _Course, outcome: Outcome, words: str, answer: bytes) -> None:
        course.waiting = False


class SequenceCaller:
    """Sends requests by a `SequenceSender`; see `tuner.load.client.calls.Caller`."""

    def __init__(self, calls: Any, sender: SequenceSender) -> None:
        self._calls, self._sender = calls, sender
        self.connect, self.drain, self.close = calls.connect, calls.drain, calls.close
        self.send = sender.send

    async def account(self, answers: Answers, offset_ns: int) -> Answers:
        """Ends what is under way, unless the server is gone."""
        del offset_ns
        return answers if answers.lost else replace(answers, unended=await self._sender.end())


def sequence_caller(part: ProcessPart, facts: Mapping[str, Any]) -> SequenceCaller:
    calls = part.calls()
    ids = [None if one is None else SequenceIds(one) for one in facts["ids"]]
    each = [ids[place] for place in part.sent.order.tolist()]
    settings = SequenceSettings(facts["first_id"], facts["count_output"])
    return SequenceCaller(calls, SequenceSender(calls, settings, part.sent.sequences, each))
