"""What a process of our own client is to do, and what it gives back.

The processes of a run share what they send in memory: `SentRequests`, on their standard input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tuner.facts import Facts
from tuner.load.traffic.kind import CallerJob
from tuner.spec.server import Tls
from tuner.spec.workload import Protocol

#: Variable of a process's environment with the headers of its requests, as JSON.
HEADERS = "TUNE_CLIENT_HEADERS"


#: In `ClientJob.settled_ns`.
GONE = -1


class Outcome(IntEnum):
    """What became of a request by the end of the run."""

    UNSENT = 0  # the client was too late
    UNANSWERED = 1
    ANSWERED = 2
    TIMED_OUT = 3  # by a queue policy, which gave it so long
    QUEUE_FULL = 4  # by a queue policy, which lets no more wait
    FAILED = 5  # any other error from the server
    LOST = 6  # with its connection
    INCOMPLETE = 7  # of a decoupled model: without a final response
    DOUBLED = 8  # of a decoupled model: after its final response came another


# Triton's words (scheduler_utils.cc) for what a queue policy refuses. The status is UNAVAILABLE,
# which is that of a lost connection too.
_REFUSALS = {"timeout expired": Outcome.TIMED_OUT, "maximum queue size": Outcome.QUEUE_FULL}


def refusal_in(words: str) -> Outcome | None:
    """How a queue policy refused the request, by an error of the server; None where none did."""
    return next((outcome for refusal, outcome in _REFUSALS.items() if refusal in words), None)


# What gRPC (grpcio 1.85), Envoy and perf_analyzer say of a connection, with the status that a
# model's answer may have too; how their messages begin, since a model may speak of its own
# connections. A server that stops says so itself.
_LOST = re.compile(
    r"(recvmsg|sendmsg|read|write)?:? ?(Connection reset|Connection refused|Broken pipe)"
    r"|Socket closed|Stream removed|Endpoint closing|GOAWAY|Received RST_STREAM"
    r"|[Ff]ailed to connect to|DNS resolution failed|Name resolution fail|FD [Ss]hutdown"
    r"|keepalive watchdog|[Pp]ing timeout|No route to host|Network is unreachable"
    r"|upstream connect error|no healthy upstream|HTTP client failed"
    r"|failed to parse the request JSON buffer: The document is empty"
    r"|(\[request id: [^]]*\] )?Server is stopping|the server ended the stream"
)


def is_lost(words: str) -> bool:
    """Whether an error is about the connection or the server's end: no answer to a request."""
    return _LOST.match(words) is not None


@dataclass(frozen=True)
class ClientJob(Facts):
    """What to send, and where results go.

    Attributes:
        total_s: The run ends this long after its start, whatever is still in flight.
        ready: Made once the process can begin.
        begin: File with the start, in nanoseconds of the monotonic clock.
        settled_ns: ``.npy`` file in which the processes of an open loop write when each request was
            answered, same clock: 0 before the answer, `GONE` for one that was refused or failed.
            A closed loop has no such file.
        tls: The fields of the spec's, if there is any.
        clients: Of a closed loop: requests outstanding at all times.
        first: Of the processes that share one run, the number of this one, from 0.
        step: How many share it: of inputs and due times each takes every step-th.
        caller: How requests are sent; None: each by itself.
    """

    address: str
    total_s: float
    answers: Path
    ready: Path
    begin: Path
    settled_ns: Path
    protocol: Protocol = Protocol.GRPC
    clients: int = 0
    first: int = 0
    step: int = 1
    tls: Mapping[str, Any] | None = None
    caller: CallerJob | None = None


@dataclass(frozen=True)
class SentRequests:
    """What the processes of a run send.

    Attributes:
        built: The different requests of each shape of each stream, as bytes.
        order: The place in ``built`` of each request; repeated.
        due_s: The moments they are due, from the start, ascending; None in a closed loop.
        sequences: The sequence of each; None where there are none, or each request is one.
    """

    built: Sequence[Sequence[bytes]]
    order: npt.NDArray[np.int64]
    due_s: npt.NDArray[np.float64] | None = None
    sequences: npt.NDArray[np.int64] | None = None

    def write(self, file: IO[bytes]) -> None:
        flat = [request for requests in self.built for request in requests]
        places = {request: place for place, request in enumerate(dict.fromkeys(flat))}
        columns = {
            "ends": np.cumsum([0, *map(len, places)]),
            "bytes": np.frombuffer(b"".join(places), "u1"),
            "places": np.array([places[request] for request in flat]),
            "counts": np.array([len(requests) for requests in self.built]),
            **{name: getattr(self, name) for name in ("order", "due_s", "sequences")},
        }
        np.savez(file, **{name: column for name, column in columns.items() if column is not None})
        file.flush()

    @classmethod
    def read(cls, path: Path) -> SentRequests:
        with np.load(path) as data:
            raw, ends = data["bytes"].tobytes(), data["ends"].tolist()
            different = [raw[start:end] for start, end in pairwise(ends)]
            flat = iter([different[place] for place in data["places"].tolist()])
            built = [list(islice(flat, count)) for count in data["counts"].tolist()]
            return cls(built, data["order"], data.get("due_s"), data.get("sequences"))


@dataclass(frozen=True)
class ProcessPart:
    """The part of a run that one process carries out.

    Attributes:
        settled_ns: The part of ``job.settled_ns`` for its requests; None in a closed loop.
        calls: Makes a caller that sends each request by itself.
    """

    job: ClientJob
    sent: SentRequests
    tls: Tls | None
    headers: Mapping[str, str]
    settled_ns: npt.NDArray[np.int64] | None
    calls: Callable[[], Any]

    @property
    def places(self) -> list[int]:
        """The place in ``sent.built`` of each of its requests, in its order; repeated."""
        order, job = self.sent.order, self.job
        mine = order[(job.first + job.step * np.arange(order.size)) % order.size]
        return [int(place) for place in mine.tolist()]


def _no_column() -> npt.NDArray[np.int64]:
    return np.array([], np.int64)


@dataclass(frozen=True)
class Answers:
    """What became of every request, in the order they were due (closed loop: sent).

    Attributes:
        numbers: Which request of the run each is, from 0; see `tuner.load.setup.Schedule`.
        answered_ns: Likewise; 0 where there was no answer of any kind.
        busy: Share of one core the client's own thread was busy, 0..1.
        cpu_s: What the client took of all cores.
        failure: The server's first error message about a failed request; empty without one.
        lost: Why the run was given up; empty when it was not.
        first_ns: When the first response came, 0 without one; no column where no model is
            decoupled.
        response_counts: Of each; likewise.
        unended: Sequences that could not be ended afterwards.
    """

    numbers: npt.NDArray[np.int64]
    sent_ns: npt.NDArray[np.int64]
    answered_ns: npt.NDArray[np.int64]
    outcomes: npt.NDArray[np.int8]
    end_ns: int
    busy: float
    cpu_s: float
    failure: str
    lost: str
    first_ns: npt.NDArray[np.int64] = field(default_factory=_no_column)
    response_counts: npt.NDArray[np.int64] = field(default_factory=_no_column)
    unended: int = 0

    def write(self, path: Path) -> None:
        """All at once: a file that is there is whole."""
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, **{name: np.asarray(value) for name, value in vars(self).items()})
        unfinished.replace(path)

    @classmethod
    def read(cls, path: Path) -> Answers:
        with np.load(path) as data:
            return cls(**{k: value if value.ndim else value.item() for k, value in data.items()})


#: What `Answers` has of each request.
_COLUMNS = ("numbers", "sent_ns", "answered_ns", "outcomes", "first_ns", "response_counts")


def select(answers: Answers, which: npt.NDArray[np.bool_]) -> Answers:
    """Only some of the requests."""
    columns = {name: getattr(answers, name) for name in _COLUMNS}
    return replace(
        answers, **{name: column[which] for name, column in columns.items() if column.size}
    )


def merge(parts: Sequence[Answers], open_loop: bool) -> Answers:
    """The answers of processes that shared a run.

    Args:
        parts: In the order of `ClientJob.first`.
        open_loop: Requests come in the order of their numbers, else in that of sending.
    """
    columns = {n: np.concatenate([getattr(part, n) for part in parts]) for n in _COLUMNS}
    order = np.argsort(columns["numbers" if open_loop else "sent_ns"], kind="stable")
    return Answers(
        **{name: column[order] for name, column in columns.items() if column.size},
        end_ns=min(part.end_ns for part in parts),
        busy=max(part.busy for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
        failure=next((part.failure for part in parts if part.failure), ""),
        lost=next((part.lost for part in parts if part.lost), ""),
        unended=sum(part.unended for part in parts),
    )
