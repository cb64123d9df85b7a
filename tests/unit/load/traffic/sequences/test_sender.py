"""What is sent of sequences, and when, over an emulated server that answers in any order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tuner.load.client.job import Outcome
from tuner.load.traffic.sequences.pace import SequenceIds
from tuner.load.traffic.sequences.sender import SequenceSender, SequenceSettings

NUMBERS = st.lists(st.integers(0, 4), min_size=1, max_size=30)
NEVER_STARTED = "inference request for sequence 8 to model 'm' must specify the START flag"


class EmulatedServer:
    """Keeps requests until they are answered; those in ``fails`` are, by their order, errors."""

    def __init__(self, fails: dict[int, tuple[Outcome, str]] | None = None) -> None:
        self.fails = fails or {}
        self.waiting: list[tuple[int, int, Callable[[Outcome, str, bytes], None]]] = []
        self.seen: dict[int, list[tuple[bool, bool]]] = defaultdict(list)
        self.count = 0
        self.most_at_once = 0

    def ask(self, request: bytes, answered: Callable[[Outcome, str, bytes], None]) -> None:
        parameters = service_pb2.ModelInferRequest.FromString(request).parameters
        number = parameters["sequence_id"].int64_param
        self.seen[number].append(
            (parameters["sequence_start"].bool_param, parameters["sequence_end"].bool_param)
        )
        self.waiting.append((number, self.count, answered))
        self.count += 1
        self.most_at_once = max(Counter(n for n, _, _ in self.waiting).values())

    def send(self, request: bytes, done: Callable[[Outcome, str], None]) -> None:
        self.ask(request, lambda outcome, words, _: done(outcome, words))

    def answer(self, place: int) -> None:
        _, k, answered = self.waiting.pop(place % len(self.waiting))
        answered(*self.fails.get(k, (Outcome.ANSWERED, "")), b"")


def sent(
    numbers: list[int], turns: list[int], server: EmulatedServer
) -> tuple[list[tuple[Outcome, str] | None], int]:
    """What became of each request, where after each some are answered; the rest at the end."""
    outcomes: list[tuple[Outcome, str] | None] = [None] * len(numbers)
    sender = SequenceSender(server, SequenceSettings(7), np.array(numbers), [SequenceIds.NUMBERS])

    def record_outcome(k: int) -> Callable[[Outcome, str], None]:
        def done(outcome: Outcome, words: str) -> None:
            assert outcomes[k] is None  # told once
            outcomes[k] = outcome, words

        return done

    for k, turn in zip(range(len(numbers)), turns * len(numbers), strict=False):
        sender.send(b"", record_outcome(k))
        if turn and server.waiting:
            server.answer(turn)
    while server.waiting and turns[0] % 2:
        server.answer(0)

    async def ended() -> int:
        ending = asyncio.ensure_future(sender.end(patience_s=5.0))
        while not ending.done():
            await asyncio.sleep(0)
            while server.waiting:
                server.answer(0)
        return await ending

    return outcomes, asyncio.run(ended())


@settings(deadline=None)
@given(NUMBERS, st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_each_request_waits_for_the_one_before_it_and_each_sequence_begins_and_ends_once(
    numbers: list[int], turns: list[int]
) -> None:
    server = EmulatedServer()
    outcomes, left = sent(numbers, turns, server)
    assert left == 0
    assert server.most_at_once == 1
    for marks in server.seen.values():
        assert [start for start, _ in marks] == [True] + [False] * (len(marks) - 1)
        assert [end for _, end in marks] == [False] * (len(marks) - 1) + [True]
    if turns[0] % 2:  # all were answered before the end
        assert set(outcomes) == {(Outcome.ANSWERED, "")}
        assert {n - 7: len(marks) for n, marks in server.seen.items()} == Counter(numbers)


@settings(deadline=None)
@given(NUMBERS, st.lists(st.integers(0, 9), min_size=1), st.integers(0, 20))
def test_rest_of_a_sequence_after_a_failure_fails_unsent_and_the_sequence_is_ended(
    numbers: list[int], turns: list[int], which: int
) -> None:
    server = EmulatedServer({which: (Outcome.FAILED, "bad input")})
    outcomes, left = sent(numbers, [1, *turns], server)
    assert left == 0
    broken = [k for k, outcome in enumerate(outcomes) if outcome == (Outcome.FAILED, "bad input")]
    for k in broken:
        after = [outcomes[j] for j in range(k + 1, len(numbers)) if numbers[j] == numbers[k]]
        assert all(outcome is not None and "not sent" in outcome[1] for outcome in after)
        assert all(outcome is not None and outcome[0] is Outcome.FAILED for outcome in after)
    for marks in server.seen.values():
        assert marks[-1][1]
        assert sum(end for _, end in marks) == 1


def test_a_sequence_whose_first_request_was_refused_is_not_ended() -> None:
    server = EmulatedServer({0: (Outcome.QUEUE_FULL, "Exceeds maximum queue size")})
    outcomes, left = sent([0, 0, 0], [1], server)
    assert left == 0
    assert [outcome[0] for outcome in outcomes if outcome] == [Outcome.QUEUE_FULL] + [
        Outcome.FAILED
    ] * 2
    assert server.seen == {7: [(True, False)]}


def test_sequence_dropped_by_the_server_is_reported_with_the_field() -> None:
    server = EmulatedServer({1: (Outcome.FAILED, NEVER_STARTED)})
    outcomes, _ = sent([0, 0, 0], [1], server)
    assert outcomes[1] is not None
    assert "max_sequence_idle_microseconds" in outcomes[1][1]


def test_sequences_that_do_not_end_in_time_are_counted() -> None:
    server = EmulatedServer()
    sender = SequenceSender(
        server, SequenceSettings(7), np.array([0, 1, 0, 1]), [SequenceIds.NUMBERS]
    )
    for _ in range(4):
        sender.send(b"", lambda *_: None)
    assert asyncio.run(sender.end(patience_s=0.02)) == 2


def test_each_request_of_a_closed_loop_is_a_separate_sequence() -> None:
    server = EmulatedServer()
    sender = SequenceSender(server, SequenceSettings(7), None, [SequenceIds.NUMBERS])
    for _ in range(3):
        sender.send(b"", lambda *_: None)
    assert server.seen == {n: [(True, True)] for n in (7, 8, 9)}


def test_requests_of_a_model_without_sequences_are_sent_as_they_are_and_wait_for_none() -> None:
    server = EmulatedServer({1: (Outcome.FAILED, "bad input")})
    numbers, ids = np.array([0, -1, -1, 0]), [SequenceIds.NUMBERS, None, None, SequenceIds.NUMBERS]
    sender = SequenceSender(server, SequenceSettings(7, "count"), numbers, ids)
    outcomes = list[Outcome]()
    for _ in ids:
        sender.send(b"", lambda outcome, _: outcomes.append(outcome))
    assert dict(server.seen) == {7: [(True, False)], 0: [(False, False)] * 2}
    server.answer(1)
    server.answer(1)
    assert outcomes == [Outcome.FAILED, Outcome.ANSWERED]
