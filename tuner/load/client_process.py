"""The open-loop client itself: ``python -m tuner.load.client_process JOB``.

A process of its own, so that nothing else this program does can delay a request. It sends each
request when it is due, once, writes down what became of it, and ends; on SIGINT at once.
"""

from __future__ import annotations

import asyncio
import gc
import json
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, TunerError
from tuner.load.channel import INFER, channel_options, is_refusal
from tuner.load.messages import RequestForm, build

_CONNECT_S = 5.0
_LEAD_NS = 20_000_000


class Outcome(IntEnum):
    """What became of a request by the end of the run."""

    UNSENT = 0  # the client was too late
    UNANSWERED = 1
    ANSWERED = 2
    REJECTED = 3  # by a queue policy
    FAILED = 4  # any other error from the server


@dataclass(frozen=True)
class Job:
    """What to send, and where results go.

    Attributes:
        inputs: File in perf_analyzer's format.
        due: ``.npy`` with the moments requests are due, in seconds from the start, ascending.
        total_s: The run ends this long after its start, whatever is still in flight.
        answers: Where `Answers` are written.
    """

    address: str
    form: RequestForm
    inputs: Path
    due: Path
    total_s: float
    answers: Path

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str))

    @classmethod
    def read(cls, path: Path) -> Job:
        data = json.loads(path.read_text())
        data["form"] = RequestForm(**data["form"])
        return cls(**{**data, **{key: Path(data[key]) for key in ("inputs", "due", "answers")}})


@dataclass(frozen=True)
class Answers:
    """What became of every request, in the order they were due.

    Attributes:
        sent_ns: Wall clock; 0 where it was not sent.
        answered_ns: Likewise; 0 where there was no answer of any kind.
        outcomes: Of `Outcome`.
        end_ns: End of the run.
        busy: Share of one core the client's own thread was busy, 0..1.
        failure: First words of the server about a request that failed; empty without one.
        lost: Why the run was given up; empty when it was not.
    """

    sent_ns: npt.NDArray[np.int64]
    answered_ns: npt.NDArray[np.int64]
    outcomes: npt.NDArray[np.int8]
    end_ns: int
    busy: float
    failure: str
    lost: str

    def write(self, path: Path) -> None:
        np.savez(path, **{name: np.asarray(value) for name, value in vars(self).items()})

    @classmethod
    def read(cls, path: Path) -> Answers:
        with np.load(path) as data:
            return cls(
                data["sent_ns"],
                data["answered_ns"],
                data["outcomes"],
                int(data["end_ns"]),
                float(data["busy"]),
                str(data["failure"]),
                str(data["lost"]),
            )


class OpenLoop:
    """Sends requests when they are due and keeps the record.

    Args:
        send: Sends one request; returns when it is answered, raises ``grpc.RpcError`` otherwise.
        requests: Gone round.
        due_s: When each is due, from the start of the run.
        total_s: Length of the run.
    """

    def __init__(
        self,
        send: Callable[[bytes], Any],
        requests: Sequence[bytes],
        due_s: npt.NDArray[np.float64],
        total_s: float,
    ) -> None:
        self._send = send
        self._requests = requests
        self._due_ns = np.rint(due_s * 1e9).astype(np.int64).tolist()
        self._total_ns = round(total_s * 1e9)
        self._sent_ns = [0] * len(self._due_ns)
        self._answered_ns = [0] * len(self._due_ns)
        self._outcomes = [Outcome.UNSENT] * len(self._due_ns)
        self._failure = ""
        self._lost = ""
        self._ended = asyncio.Event()

    async def run(self) -> Answers:
        """Until the end of the run, or until it is stopped or the connection lost."""
        # durations from the clock that is never set, moments on the wall clock
        offset_ns = time.time_ns() - time.monotonic_ns()
        begin_ns = time.monotonic_ns() + _LEAD_NS
        rest_s = (begin_ns + self._total_ns - time.monotonic_ns()) / 1e9
        busy_s = time.thread_time()
        sender = asyncio.create_task(self._send_all(begin_ns))
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._ended.wait()
        end_ns = time.monotonic_ns()
        busy_s = time.thread_time() - busy_s
        if not sender.cancel():
            sender.result()  # a defect in here must not pass for silence of the server
        return Answers(
            _wall(self._sent_ns, offset_ns),
            _wall(self._answered_ns, offset_ns),
            np.array(self._outcomes, dtype=np.int8),
            end_ns + offset_ns,
            busy_s / ((end_ns - begin_ns) / 1e9),
            self._failure,
            self._lost,
        )

    def stop(self) -> None:
        """Ends the run now, with what there is."""
        self._ended.set()

    async def _send_all(self, begin_ns: int) -> None:
        requests = self._requests
        async with asyncio.TaskGroup() as group:
            for k, due_ns in enumerate(self._due_ns):
                # a wait of nothing at least lets the requests before this one go
                wait_ns = begin_ns + due_ns - time.monotonic_ns()
                await asyncio.sleep(max(wait_ns, 0) / 1e9)
                group.create_task(self._one(k, requests[k % len(requests)]))

    async def _one(self, k: int, request: bytes) -> None:
        self._sent_ns[k] = time.monotonic_ns()
        self._outcomes[k] = Outcome.UNANSWERED
        try:
            await self._send(request)
        except grpc.RpcError as error:
            self._answered_ns[k] = time.monotonic_ns()
            self._outcomes[k] = self._refused(error)
        else:
            self._answered_ns[k] = time.monotonic_ns()
            self._outcomes[k] = Outcome.ANSWERED

    def _refused(self, error: Any) -> Outcome:
        words = str(error.details())
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            self._failure = self._failure or words
            return Outcome.FAILED
        if is_refusal(words):
            return Outcome.REJECTED
        self._lost = self._lost or words
        self._ended.set()
        return Outcome.FAILED


def _wall(monotonic_ns: Sequence[int], offset_ns: int) -> npt.NDArray[np.int64]:
    moments = np.array(monotonic_ns, dtype=np.int64)
    return np.where(moments > 0, moments + offset_ns, 0)


async def _carry_out(job: Job, requests: Sequence[bytes]) -> Answers:
    due_s = np.load(job.due)
    channel = grpc.aio.insecure_channel(job.address, options=channel_options(job.address))
    try:
        async with asyncio.timeout(_CONNECT_S):
            await channel.channel_ready()
    except TimeoutError as error:
        raise LoadFailedError(f"no connection to {job.address} in {_CONNECT_S:g} s") from error
    # Without serialisers bytes are sent, and answers stay unread, as they came.
    load = OpenLoop(channel.unary_unary(INFER), requests, due_s, job.total_s)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, load.stop)
    answers = await load.run()
    await channel.close()  # Triton drops what it has not begun
    return answers


def _precise_loop() -> asyncio.SelectorEventLoop:
    """One that waits microseconds: epoll and poll wait whole milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main(path: Path) -> None:
    job = Job.read(path)
    requests = build(job.inputs, job.form, np.load(job.due, mmap_mode="r").size)
    gc.freeze()
    with asyncio.Runner(loop_factory=_precise_loop) as runner:
        answers = runner.run(_carry_out(job, requests))
    answers.write(job.answers)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except TunerError as error:
        sys.exit(str(error))
