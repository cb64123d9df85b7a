"""The job of a process of tune's client, and the record that it returns.

The processes of a run share their requests in memory: `SentRequests`, on their standard input.
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

#: Environment variable with the headers of requests, as JSON.
HEADERS = "TUNE_CLIENT_HEADERS"


#: Mark in `ClientJob.settled_ns` for a request that was refused or failed.
GONE = -1


class Outcome(IntEnum):
    """The outcome of a request by the end of the run."""

    UNSENT = 0  # the client was behind
    UNANSWERED = 1
    ANSWERED = 2
    TIMED_OUT = 3  # in the queue, after the timeout of its policy
    QUEUE_FULL = 4  # refused by the queue's size limit
    FAILED = 5  # any other error from the server
    LOST = 6  # the connection was lost
    INCOMPLETE = 7  # decoupled model: no final response
    DOUBLED = 8  # decoupled model: another response after the final one


# Triton's words (scheduler_utils.cc) for requests that a queue policy refuses. Their status,
# UNAVAILABLE, is also that of a lost connection.
_REFUSALS = {"timeout expired": Outcome.TIMED_OUT, "maximum queue size": Outcome.QUEUE_FULL}


def refusal_in(words: str) -> Outcome | None:
    """How a queue policy refused the request, from the server's error; None if none did."""
    return next((outcome for refusal, outcome in _REFUSALS.items() if refusal in words), None)


# How messages of gRPC (grpcio 1.85), Envoy and perf_analyzer about a connection begin; the same
# status may come with a model's answer, and a model may mention its own connections further on.
# A server that stops says so in its own words.
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
    """Whether an error means that the connection or the server ended, so that no answer came."""
    return _LOST.match(words) is not None


@dataclass(frozen=True)
class ClientJob(Facts):
    """The requests that a process sends, and the files for its results.

    Attributes:
        address: ``host:port`` of the server.
        total_s: Time from the start to the end of the run, whatever is still in flight.
        answers: File for the record of the run.
        ready: File that the process makes once it is ready to start.
        begin: File with the start, in nanoseconds of the monotonic clock.
        settled_ns: ``.npy`` file in which the processes of an open loop write when each request
            was answered, on the same clock: 0 before the answer, `GONE` if the request was refused
            or failed. A closed loop has no such file.
        protocol: gRPC or HTTP.
        clients: Closed loop: requests outstanding at all times.
        first: Number of this process among those of the run, from 0.
        step: Number of processes of the run; each takes every step-th input and due time.
        tls: The TLS fields of the spec, if it has any.
        caller: How requests are sent; None: each separately.
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
    """The requests that the processes of a run send.

    Attributes:
        built: The distinct requests of each shape of each stream, as bytes.
        order: For each request in turn, its shape's place in ``built``; repeated when exhausted.
        due_s: When each request is due, in seconds from the start, ascending; None in a closed
            loop.
        sequences: Number of each request's sequence; None if there are none, or if each request is
            a sequence of its own.
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
        calls: Makes a caller that sends each request separately.
    """

    job: ClientJob
    sent: SentRequests
    tls: Tls | None
    headers: Mapping[str, str]
    settled_ns: npt.NDArray[np.int64] | None
    calls: Callable[[], Any]

    @property
    def places(self) -> list[int]:
        """The place in ``sent.built`` of each of its requests, in turn; repeated when exhausted."""
        order, job = self.sent.order, self.job
        mine = order[(job.first + job.step * np.arange(order.size)) % order.size]
        return [int(place) for place in mine.tolist()]


def _no_column() -> npt.NDArray[np.int64]:
    return np.array([], np.int64)


@dataclass(frozen=True)
class Answers:
    """The outcome of every request, in the order in which they were due (closed loop: sent).

    Attributes:
        numbers: Number of each request in the run, from 0; see `tuner.load.setup.Schedule`.
        sent_ns: When each request was sent, on the wall clock.
        answered_ns: When each request was answered; 0 without any answer.
        outcomes: `Outcome` of each request.
        end_ns: End of the run, on the wall clock.
        busy: Share of one core for which the client's thread was busy, 0..1.
        cpu_s: CPU time of the client, over all cores.
        failure: The server's first error message about a failed request; empty without one.
        lost: Why the run was aborted; empty if it was not.
        first_ns: When each first response came, 0 without one; an empty array if no model is
            decoupled.
        response_counts: Number of responses to each request; an empty array likewise.
        unended: Number of sequences that could not be ended after the load.
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
        """Writes the file atomically: a file that exists is complete."""
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, **{name: np.asarray(value) for name, value in vars(self).items()})
        unfinished.replace(path)

    @classmethod
    def read(cls, path: Path) -> Answers:
        with np.load(path) as data:
            return cls(**{k: value if value.ndim else value.item() for k, value in data.items()})


#: Fields of `Answers` with one entry per request.
_COLUMNS = ("numbers", "sent_ns", "answered_ns", "outcomes", "first_ns", "response_counts")


def select(answers: Answers, which: npt.NDArray[np.bool_]) -> Answers:
    """The record of only the requests in the mask ``which``."""
    columns = {name: getattr(answers, name) for name in _COLUMNS}
    return replace(
        answers, **{name: column[which] for name, column in columns.items() if column.size}
    )


def merge(parts: Sequence[Answers], open_loop: bool) -> Answers:
    """One record from those of the processes that shared a run.

    Args:
        parts: One record per process, in the order of `ClientJob.first`.
        open_loop: Order requests by their numbers; else by the time of sending.
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
