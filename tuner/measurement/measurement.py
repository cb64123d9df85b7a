"""What one run of load against one deployed config gave, with units in every name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, computed_field
from pydantic.json_schema import SkipJsonSchema

from tuner.facts import Facts
from tuner.measurement.host_use import HostUse, is_unknown
from tuner.measurement.responses import ResponseFigures
from tuner.reason import Reason
from tuner.sentences import sentence
from tuner.spec.units import digits

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Latencies = npt.NDArray[np.float64] | None
else:
    Latencies = Annotated[SkipJsonSchema[Any], Field(exclude=True)]


class Arrivals(Enum):
    """How requests come: by clients that wait for answers, or on a clock that does not."""

    CLOSED = "closed"  # level = requests outstanding at all times (concurrency)
    POISSON = "poisson"  # level = mean requests per second, exponential gaps
    TRACE = "trace"  # level = mean requests per second, gaps from a file, rescaled
    RECORDING = "recording"  # level = mean requests per second of what a window replays
    BURSTS = "bursts"  # level = mean requests per second, Poisson that switches between two rates
    SEQUENCES = "sequences"  # level = requests per second of sequences, each on a clock of its own
    STEP = "step"  # level = capacity in requests per second, which the measured window exceeds

    @property
    def open_loop(self) -> bool:
        return self is not Arrivals.CLOSED


@dataclass(frozen=True)
class LoadPoint:
    """One level of load: ``level`` is concurrency (closed) or requests per second (open)."""

    arrivals: Arrivals
    level: float

    def __str__(self) -> str:
        unit = "/s" if self.arrivals.open_loop else " concurrent"
        return f"{digits(self.level, 4)}{unit}"


@dataclass(frozen=True)
class ServerStatistics:
    """Difference of Triton's statistics over the measurement (averages are per request).

    ``batch_stats``: (batch size, executions, total compute-infer nanoseconds) per batch size.
    Source: Triton's statistics extension; cache hits count in ``queue`` but not in ``compute``.
    """

    success_count: int
    fail_count: int
    inference_count: int
    execution_count: int
    queue_us: float
    compute_input_us: float
    compute_infer_us: float
    compute_output_us: float
    cache_hit_count: int = 0
    cache_miss_count: int = 0
    batch_stats: tuple[tuple[int, int, int], ...] = ()

    @property
    def compute_us(self) -> float:
        """The average request's computing, with the copies before and after."""
        return self.compute_input_us + self.compute_infer_us + self.compute_output_us

    @property
    def mean_batch_size(self) -> float | None:
        return self.inference_count / self.execution_count if self.execution_count else None

    @property
    def cache_hit_rate(self) -> float | None:
        """Hits per successful request: misses answered while in flight count as neither."""
        return self.cache_hit_count / self.success_count if self.success_count else None


@dataclass(frozen=True)
class Restart:
    """One of several starts of a closed loop, which may settle into another mode each time."""

    throughput_infer_per_s: float
    p99_latency_us: float


@dataclass(frozen=True)
class Slice:
    """A stretch of a measurement: requests due from ``start_s`` (from the start of the load) on."""

    start_s: float
    due_per_s: float
    answered_per_s: float
    p99_latency_us: float | None
    refused_per_s: float = 0.0  # of those due


@dataclass(frozen=True)
class Course:
    """How latency went over the window; see `tuner.load.course`.

    Attributes:
        growth: From the first to the last moment on a line, as a share of the mean latency.
        growth_error: Its standard error, with the correlation of neighbours in it.
        relaxation_s: How long the latency remembers: half of the sum of its autocorrelations.
    """

    growth: float
    growth_error: float
    relaxation_s: float


class FailureReason(Enum):
    """Why a request failed, by the server's words; the last two are those of decoupled models."""

    TIMED_OUT = "timed_out"
    QUEUE_FULL = "queue_full"
    OTHER = "other"
    INCOMPLETE = "incomplete"
    DOUBLED = "doubled"

    @property
    def by_queue(self) -> bool:
        """Whether a queue policy refused it."""
        return self in (FailureReason.TIMED_OUT, FailureReason.QUEUE_FULL)

    @property
    def words(self) -> str:
        """For a sentence about requests."""
        return _FAILED[self]


_FAILED = {
    FailureReason.TIMED_OUT: "timed out in the queue",
    FailureReason.QUEUE_FULL: "refused by a full queue",
    FailureReason.OTHER: "failed for other reasons",
    FailureReason.INCOMPLETE: "without a final response",
    FailureReason.DOUBLED: "answered again after the final response",
}


@dataclass(frozen=True)
class Failures:
    """Requests that failed for one reason, and how late their clients were told.

    The percentiles count from when a request was due, in a closed loop from when it was sent.
    """

    count: int
    p50_told_us: float
    p99_told_us: float

    @property
    def text(self) -> str:
        """`120, told after 51 ms (p99 310 ms)`."""
        p50, p99 = (digits(us / 1e3) for us in (self.p50_told_us, self.p99_told_us))
        return f"{self.count:,}, told after {p50} ms (p99 {p99} ms)"


def _empty(value: object) -> bool:
    return not value


@dataclass(frozen=True)
class Figures(Facts):
    """What a load gave of the requests of all streams, of one stream, or of one shape.

    Of a mix of streams counts and rates are those of the streams that share the level, added up,
    and percentiles are over the requests of them all.

    Attributes:
        duration_s: Length of the window the figures are over (not the whole run).
        left_out_s: What was left out of that window: stalls of the machine and what they held up.
        completed_count: Requests answered without error inside the window.
        failed_count: Requests answered with an error inside the window, the rejected included.
        rejected_count: Requests a queue policy refused (``max_queue_size``, queue timeout).
        failures: The failed requests by reason, as far as there are any.
        throughput_infer_per_s: Inferences answered inside the window, per second of it.
        p50_latency_us: Nearest rank, like all percentiles. Open loop: over the requests *due*
            inside the window, counted from the moment they were due.
            Closed loop: over the requests answered inside it.
        unanswered_count: Requests due inside the window and not answered when the run ended
            (open loop only). Each counts as slower than every answered one and as at least
            ``Window.tail_s``, so that a percentile among them is a lower bound.
        batch_size: Inferences in one request.
        sent_per_s: Requests sent inside the window, per second of it.
        due_per_s: Requests due inside the window, per second of it (open loop only).
        send_lag_p99_us: 99th percentile of how long after they were due requests were sent
            (open loop with per-request figures only).
        late_sends: Share of requests sent more than 1 ms after they were due, 0..1
            (open loop only).
        within_bounds: Whether every percentile of the latency that an SLO bounds was within its
            bound, lost requests counted as late; ``None`` where there is none, or not known.
        mean_in_flight: Mean number of requests due (closed loop: sent) and not yet answered.
        backlog: The server was still working off requests when the measurement ended.
        latencies_us: Each request's latency, sorted ascending; not stored on disk.
        by_arrival_us: The same in the order in which requests were due, infinite for those that
            were refused or failed (open loop only). Not stored on disk.
        all_by_arrival_us: The same with what was left out, where anything was. Not stored on disk.
        outside_gaps_us: Those of requests that did not wait in one of a few gaps, in which nothing
            was answered at all, ascending; None without such a gap. Not stored on disk.
        course: How they went over the window; None for closed loops, or from too few requests.
        background: A stream's: with a rate of its own, beside the load.
        shapes: Of a stream whose requests have several shapes the figures of each, by the name of
            the shape; those of which no request was due are left out.
        in_time_infer_per_s: Of a shape: inferences answered within the bound of the stream's SLO on
            the highest percentile; None where no percentile is bounded.
        sequences_at_once: Of a load of sequences: how many ran at once, on average.
        responses: Of a decoupled model, whose latencies above are until the response, first or
            last, that the SLO on the highest percentile is about; without one until the last.
        server: Of the model that the load is put on; None where there are several.
        restarts: Closed loops: each start of the load on its own; the figures are over all.
        slices: How it went over time; only where that was asked for (overload).
        warnings: What a reader must know of it.
    """

    load: LoadPoint
    seed: int
    duration_s: float
    completed_count: int
    failed_count: int
    throughput_infer_per_s: float
    avg_latency_us: float
    p50_latency_us: float
    p90_latency_us: float
    p95_latency_us: float
    p99_latency_us: float
    sent_per_s: float | None = None
    due_per_s: float | None = None
    late_sends: float | None = None
    send_lag_p99_us: float | None = None
    within_bounds: bool | None = None
    client_send_us: float | None = None
    client_recv_us: float | None = None
    network_us: float | None = None
    server: ServerStatistics | None = None
    batch_size: int = 1
    unanswered_count: int = 0
    rejected_count: int = 0
    mean_in_flight: float | None = None
    backlog: bool = False
    restarts: tuple[Restart, ...] = ()
    slices: tuple[Slice, ...] = ()
    warnings: Annotated[tuple[Reason, ...], Field(alias="warnings_data")] = ()
    course: Course | None = None
    shapes: Annotated[Mapping[str, Figures], Field(exclude_if=_empty)] = field(default_factory=dict)
    in_time_infer_per_s: Annotated[float | None, Field(exclude_if=is_unknown)] = None
    sequences_at_once: Annotated[float | None, Field(exclude_if=is_unknown)] = None
    background: Annotated[bool, Field(exclude_if=_empty)] = False
    left_out_s: Annotated[float, Field(exclude_if=_empty)] = 0.0
    failures: Annotated[Mapping[FailureReason, Failures], Field(exclude_if=_empty)] = field(
        default_factory=dict
    )
    responses: Annotated[ResponseFigures | None, Field(exclude_if=is_unknown)] = None
    latencies_us: Latencies = field(default=None, compare=False, repr=False)
    by_arrival_us: Latencies = field(default=None, compare=False, repr=False)
    all_by_arrival_us: Latencies = field(default=None, compare=False, repr=False)
    outside_gaps_us: Latencies = field(default=None, compare=False, repr=False)

    @computed_field(alias="warnings")  # type: ignore[prop-decorator]
    @property
    def warning_texts(self) -> tuple[str, ...]:
        """One sentence each."""
        return tuple(map(sentence, self.warnings))

    def of(self, stream: str) -> Figures | None:
        """The figures that an SLO of a stream is about: those of a part are its own."""
        del stream
        return self

    @property
    def sustained_infer_per_s(self) -> float:
        """The throughput; of a recording, whose windows hold its busiest part, at most the load."""
        if self.load.arrivals is not Arrivals.RECORDING or self.requests_per_s <= self.load.level:
            return self.throughput_infer_per_s
        return self.throughput_infer_per_s * self.load.level / self.requests_per_s

    @property
    def requests_per_s(self) -> float:
        """Requests answered per second of the window."""
        return self.throughput_infer_per_s / self.batch_size

    @property
    def avg_answer_us(self) -> float:
        """The mean time until all of an answer is there, which is what servers count."""
        return self.responses.avg_last_response_us if self.responses else self.avg_latency_us

    @property
    def error_rate(self) -> float | None:
        """Failed requests per request, 0..1; ``None`` when nothing was answered at all."""
        total = self.completed_count + self.failed_count
        return self.failed_count / total if total else None


@dataclass(frozen=True)
class Measurement(Figures):
    """One load point measured once: the figures of all requests, and those of each stream.

    Attributes:
        host: What the machines did meanwhile.
        client_cores: What the load generator took of one core while it sent, perhaps above 1.
        streams: Of a mix the figures of each stream, those of the background too; empty where
            there is only one, and without those of which no request was due.
        models: What the server counted of every model it serves, by name.
        disturbances: What else on the machine disturbed it.
        command: The exact command line that measured.
    """

    client_cores: Annotated[float | None, Field(exclude_if=is_unknown)] = None
    host: HostUse = field(default_factory=HostUse)
    disturbances: Annotated[tuple[Reason, ...], Field(alias="disturbances_data")] = ()
    wall_s: float = 0.0
    command: tuple[str, ...] = ()
    streams: Annotated[Mapping[str, Figures], Field(exclude_if=_empty)] = field(
        default_factory=dict
    )
    models: Annotated[Mapping[str, ServerStatistics], Field(exclude_if=_empty)] = field(
        default_factory=dict
    )

    @computed_field(alias="disturbances")  # type: ignore[prop-decorator]
    @property
    def disturbance_texts(self) -> tuple[str, ...]:
        """One sentence each."""
        return tuple(map(sentence, self.disturbances))

    @classmethod
    def of_all(cls, figures: Figures) -> Measurement:
        """A measurement with these figures of all requests, and nothing of streams and machines."""
        return cls(**{f.name: getattr(figures, f.name) for f in fields(Figures)})

    def of(self, stream: str) -> Figures | None:
        """A stream's figures; all for ``""``; None where no request of the stream was due."""
        return self.streams.get(stream) if stream and self.streams else self

    @property
    def shared(self) -> Mapping[str, Figures]:
        """The streams whose figures are added up: all but those of the background."""
        streams = self.streams or {"": self}
        return {name: stream for name, stream in streams.items() if not stream.background}

    @property
    def requests_per_s(self) -> float:
        """Requests answered per second of the window."""
        if self.streams:  # whose batch sizes may differ
            return self.completed_count / self.duration_s
        return super().requests_per_s


class Stage(Enum):
    """What a run was measuring for."""

    SEARCH = "search"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True)
class Rejected(Facts):
    """One rejected measurement.

    Attributes:
        level: Of the load, see `tuner.measurement.measurement.LoadPoint`.
        wall_s: What it took.
        measurement: Its result; None when it did not get that far.
    """

    reason: Reason
    candidate_key: str
    level: float
    wall_s: float
    stage: Annotated[Stage, Field(alias="phase")]
    measurement: Measurement | None = None
