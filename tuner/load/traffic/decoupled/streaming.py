"""Requests to decoupled models, through one gRPC stream per process of tune's client.

Triton sends the responses of a stream as they come, in any order: each has the id of its request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from grpc import aio  # type: ignore[import-untyped]

from tuner.load.client.calls import Done, GrpcCalls
from tuner.load.client.job import GONE, Answers, Outcome, ProcessPart
from tuner.load.traffic.decoupled.responses import (
    SILENCE_S,
    Response,
    ResponseEnd,
    ResponseRecord,
)
from tuner.load.traffic.decoupled.streamed import INFER, LOOKS_S, numbered, response_of
from tuner.spec.server import Tls


@dataclass(frozen=True)
class Question:
    """Properties of a request that decide how it is sent and when it counts as answered.

    Attributes:
        streamed: Its model is decoupled: the request goes through a gRPC stream.
        until_first: It counts as answered at its first response.
    """

    streamed: bool = False
    until_first: bool = False


class StreamedCalls(GrpcCalls):
    """Sends each request of a run separately, or through the stream if its model is decoupled.

    Args:
        address: ``host:port`` of the server.
        tls: The TLS settings, if any.
        questions: Properties of the requests in the order of sending; repeated when exhausted.
        settled_ns: See `ClientJob.settled_ns`; for these requests.
        silence_s: Time without a response after which a begun request is given up.
    """

    def __init__(
        self,
        address: str,
        tls: Tls | None,
        headers: Mapping[str, str],
        questions: Sequence[Question],
        settled_ns: npt.NDArray[np.int64] | None,
        silence_s: float = SILENCE_S,
    ) -> None:
        super().__init__(address, tls, headers)
        self._questions = questions
        self._settled_ns = settled_ns
        self._silence_ns = round(silence_s * 1e9)
        self._record = ResponseRecord()
        self._dones: dict[int, Done] = {}
        self._to_write: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        await super().connect()
        stream = self._channel.stream_stream(INFER)(metadata=self._metadata)
        work = (self._write(stream), self._read(stream), self._watch())
        self._tasks = [asyncio.create_task(coroutine) for coroutine in work]

    def send(self, request: bytes, done: Done) -> None:
        number = len(self._record)
        streamed = self._question(number).streamed
        self._record.add_request(streamed=streamed)
        if not streamed:
            super().send(request, partial(self._over, number, done))
            return
        self._dones[number] = partial(self._over, number, done)
        self._to_write.put_nowait(numbered(request, number))

    async def drain(self) -> None:
        """Waits until every begun request has its last response, or is given up."""
        begun = self._record.begun
        while begun & self._record.begun:
            await asyncio.sleep(LOOKS_S)

    async def account(self, answers: Answers, offset_ns: int) -> Answers:
        """See `ResponseRecord.account`."""
        return self._record.account(answers, self._silence_ns, offset_ns)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await super().close()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    def _question(self, number: int) -> Question:
        return self._questions[number % len(self._questions)]

    def _over(self, number: int, done: Done, outcome: Outcome, words: str) -> None:
        if outcome is Outcome.ANSWERED:
            self._show(number)
        elif self._settled_ns is not None:
            self._settled_ns[number] = GONE
        done(outcome, words)

    def _show(self, number: int) -> None:
        if self._settled_ns is not None and not self._settled_ns[number]:
            self._settled_ns[number] = time.monotonic_ns()

    def _end(self, ending: ResponseEnd | None) -> None:
        if ending is not None:
            self._dones.pop(ending.number)(ending.outcome, ending.words)

    async def _write(self, stream: Any) -> None:
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):  # the reader reports it
            while True:
                await stream.write(await self._to_write.get())

    async def _read(self, stream: Any) -> None:
        words = "the server ended the stream"
        try:
            while (message := await stream.read()) is not aio.EOF:
                self._receive(response_of(message, time.monotonic_ns()))
        except aio.AioRpcError as error:
            words = str(error.details())
        for number in [*self._dones]:
            self._end(self._record.failed(number, Outcome.LOST, words))

    def _receive(self, response: Response) -> None:
        ending = self._record.receive(response)
        number = -1 if response.number is None else response.number
        until_first = number in self._dones and self._question(number).until_first
        if until_first and self._record.has_begun(number):
            self._show(number)
        self._end(ending)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOKS_S)
            for ending in [*self._record.silent(time.monotonic_ns(), self._silence_ns)]:
                self._end(ending)


def streamed_calls(part: ProcessPart, facts: Mapping[str, Any]) -> StreamedCalls:
    """The caller of a load with decoupled models."""
    kinds = [
        Question(*facts_of)
        for facts_of in zip(facts["streamed"], facts["until_first"], strict=True)
    ]
    questions = [kinds[place] for place in part.places]
    to = part.job.address, part.tls, part.headers
    return StreamedCalls(*to, questions, part.settled_ns, facts["silence_s"])
