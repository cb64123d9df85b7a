"""A process of tune's client: ``python -m tuner.load.client.process JOB``.

It is a separate process so that no other work of this program can delay a request. It sends each
request once, when it is due (closed loop: when another request is answered), records the outcome,
and ends; on SIGINT, at once.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import numpy.typing as npt

from tuner.errors import LoadFailedError, TunerError
from tuner.hiding import keep_secret, without_passwords
from tuner.load.client.calls import Caller, Done, calls_over
from tuner.load.client.job import (
    GONE,
    HEADERS,
    Answers,
    ClientJob,
    Outcome,
    ProcessPart,
    SentRequests,
)
from tuner.load.traffic.kind import CallerJob
from tuner.load.traffic.turns import in_order
from tuner.spec.server import Tls

#: Time from the start signal to the start, so that every process of a run receives the signal.
LEAD_NS = 20_000_000
_READY_S = 120.0  # for the slowest process of a run
_POLL_S = 0.002
#: Opened by its path, so that each process reads the file from the start.
STANDARD_INPUT = Path("/proc/self/fd/0")
#: Number of late requests to send before looking for answers again.
_AT_ONCE = 8

Send = Callable[[bytes, Done], None]


class Loop:
    """Sends requests and records their outcomes.

    Args:
        send: Sends one request, and reports its outcome.
        requests: The requests of all streams in turn; repeated when exhausted.
        total_s: Time from the start to the end of the run.
        due_s: Open loop: when each request is sent, whether or not others are answered.
        settled_ns: Where each outcome is written during the run, see `ClientJob.settled_ns`.
        clients: Closed loop: requests outstanding at all times.
        first: Number of this process among those of the run, from 0.
        step: Number of processes of the run.
        drain: Waits, at the end of the load, for answers that are still to come.
    """

    def __init__(
        self,
        send: Send,
        requests: Sequence[bytes],
        total_s: float,
        *,
        due_s: npt.NDArray[np.float64] | None = None,
        settled_ns: npt.NDArray[np.int64] | None = None,
        clients: int = 0,
        first: int = 0,
        step: int = 1,
        drain: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._send = send
        self._drain = drain
        self.offset_ns = 0  # from the monotonic clock to the wall clock
        self._requests = requests
        self._total_ns = round(total_s * 1e9)
        self._due_ns = [] if due_s is None else np.rint(due_s * 1e9).astype(np.int64).tolist()
        self._settled_ns = settled_ns
        self._clients = clients
        self._first, self._step = first, step
        self._sent_ns: list[int] = []
        self._answered_ns: list[int] = []
        self._outcomes: list[Outcome] = []
        self._failure = ""
        self._lost = ""
        self._ended = asyncio.Event()
        self._room(len(self._due_ns))

    async def run(self, begin_ns: int | None = None) -> Answers:
        """Sends until the end of the run, a stop, or the loss of the connection.

        Args:
            begin_ns: Start on the monotonic clock; None: soon.
        """
        # the monotonic clock is never set, so it gives durations; moments are on the wall clock
        offset_ns = self.offset_ns = time.time_ns() - time.monotonic_ns()
        begin_ns = time.monotonic_ns() + LEAD_NS if begin_ns is None else begin_ns
        rest_s = (begin_ns + self._total_ns - time.monotonic_ns()) / 1e9
        busy_s, cpu_s = time.thread_time(), time.process_time()
        sender = asyncio.create_task(self._send_all(begin_ns))
        sender.add_done_callback(self._check)
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._ended.wait()
        unfinished = sender.cancel()
        self._clients = 0
        if self._drain is not None and not self._ended.is_set():
            await self._drained(self._drain)
        self._ended.set()
        end_ns = time.monotonic_ns()
        busy_s, cpu_s = time.thread_time() - busy_s, time.process_time() - cpu_s
        if not unfinished:
            sender.result()  # a defect here must not look like a silent server
        return Answers(
            self._first + self._step * np.arange(len(self._sent_ns)),
            _wall(self._sent_ns, offset_ns),
            _wall(self._answered_ns, offset_ns),
            np.array(self._outcomes, dtype=np.int8),
            end_ns + offset_ns,
            busy_s / ((end_ns - begin_ns) / 1e9),
            cpu_s,
            without_passwords(self._failure),
            without_passwords(self._lost),
        )

    async def _drained(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Drains, unless the run is stopped first."""
        work = {asyncio.ensure_future(drain()), asyncio.create_task(self._ended.wait())}
        done, waiting = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        for task in done:
            task.result()

    def stop(self) -> None:
        """Ends the run now, with the outcomes so far."""
        self._ended.set()

    async def _send_all(self, begin_ns: int) -> None:
        for k, due_ns in enumerate(self._due_ns):
            wait_ns = begin_ns + due_ns - time.monotonic_ns()
            if wait_ns > 0 or k % _AT_ONCE == 0:
                await asyncio.sleep(max(wait_ns, 0) / 1e9)
            self._one(k)
        if self._clients:
            await asyncio.sleep(max(begin_ns - time.monotonic_ns(), 0) / 1e9)
        for _ in range(self._clients):
            self._another()

    def _another(self) -> None:
        self._room(1)
        self._one(len(self._sent_ns) - 1)

    def _one(self, k: int) -> None:
        self._sent_ns[k] = time.monotonic_ns()
        self._outcomes[k] = Outcome.UNANSWERED
        number = self._first + k * self._step
        self._send(self._requests[number % len(self._requests)], partial(self._done, k))

    def _done(self, k: int, outcome: Outcome, words: str) -> None:
        if self._ended.is_set():
            return
        self._answered_ns[k] = time.monotonic_ns()
        self._outcomes[k] = outcome
        if self._settled_ns is not None:
            self._settled_ns[k] = self._answered_ns[k] if outcome is Outcome.ANSWERED else GONE
        if outcome is Outcome.FAILED:
            self._failure = self._failure or words
        if outcome is Outcome.LOST:
            self._lost = self._lost or words
            self._ended.set()
        elif self._clients:
            self._another()

    def _room(self, count: int) -> None:
        self._sent_ns += [0] * count
        self._answered_ns += [0] * count
        self._outcomes += [Outcome.UNSENT] * count

    def _check(self, sender: asyncio.Task[None]) -> None:
        if not sender.cancelled() and sender.exception() is not None:
            self._ended.set()


def _wall(monotonic_ns: Sequence[int], offset_ns: int) -> npt.NDArray[np.int64]:
    moments = np.array(monotonic_ns, dtype=np.int64)
    return np.where(moments > 0, moments + offset_ns, 0)


async def _carry_out(job: ClientJob, sent: SentRequests, headers: Mapping[str, str]) -> Answers:
    tls = None if job.tls is None else Tls(**job.tls)
    mine = slice(job.first, None, job.step)
    settled_ns = None if sent.due_s is None else np.load(job.settled_ns, mmap_mode="r+")[mine]
    single = partial(calls_over, job.protocol, job.address, tls, headers)
    calls = _caller(job.caller, ProcessPart(job, sent, tls, headers, settled_ns, single))
    requests = in_order(sent.built, sent.order)
    gc.freeze()
    await calls.connect()
    load = Loop(
        calls.send,
        requests,
        job.total_s,
        due_s=None if sent.due_s is None else sent.due_s[mine],
        settled_ns=None if job.caller is not None and job.caller.by_answer else settled_ns,
        clients=job.clients,
        first=job.first,
        step=job.step,
        drain=calls.drain,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, load.stop)
    answers = await load.run(await _beginning(job))
    answers = await calls.account(answers, load.offset_ns)
    await calls.close()
    return answers


def _caller(job: CallerJob | None, part: ProcessPart) -> Caller:
    """The caller that a kind of traffic brings, else one that sends each request separately."""
    caller: Caller = part.calls() if job is None else resolve_name(job.maker)(part, job.facts)
    return caller


async def _beginning(job: ClientJob) -> int:
    """Signals that this process is ready, and waits for the start signal; the start in ns."""
    job.ready.touch()
    deadline = time.monotonic() + _READY_S
    while not job.begin.exists():
        if time.monotonic() > deadline:
            raise LoadFailedError("no signal to begin was received")
        await asyncio.sleep(_POLL_S)
    return int(job.begin.read_text())


def precise_loop() -> asyncio.SelectorEventLoop:
    """An event loop that waits microseconds: epoll and poll wait whole milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main(path: Path, headers: Mapping[str, str]) -> None:
    job = ClientJob.from_json(json.loads(path.read_text()))
    keep_secret(*headers.values())
    sent = SentRequests.read(STANDARD_INPUT)
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        answers = runner.run(_carry_out(job, sent, headers))
    answers.write(job.answers)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), json.loads(os.environ.get(HEADERS, "{}")))
    except TunerError as error:
        sys.exit(str(error))
