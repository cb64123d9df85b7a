"""Figures from one load on one deployed config, with units in every name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, computed_field
from pydantic.json_schema import SkipJsonSchema

from tuner.facts import Facts, is_empty, is_none
from tuner.measurement.host_use import HostUse
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
    """How requests arrive: each client waits for its answers, or a clock sends without waiting."""

    CLOSED = "closed"  # level = requests outstanding at all times (concurrency)
    POISSON = "poisson"  # level = mean requests per second, exponential gaps
    CONSTANT = "constant"  # level = requests per second, equal gaps
    TRACE = "trace"  # level = mean requests per second, gaps from a file, rescaled
    RECORDING = "recording"  # level = mean requests per second of the part that a window replays
    BURSTS = "bursts"  # level = mean requests per second, Poisson that switches between two rates
    SEQUENCES = "sequences"  # level = requests per second of sequences, each with its own clock
    STEP = "step"  # level = capacity in requests per second; the measured window exceeds it

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
    """Triton's statistics for one measurement: counters after it less those before it.

    Durations are means per request, in microseconds.
    Source: Triton's statistics extension; cache hits count in ``queue`` but not in ``compute``.

    Attributes:
        batch_stats: (batch size, executions, total compute-infer nanoseconds) per batch size.
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
        """Mean compute time of a request, including the copies of its inputs and outputs."""
        return self.compute_input_us + self.compute_infer_us + self.compute_output_us

    @property
    def mean_batch_size(self) -> float | None:
        return self.inference_count / self.execution_count if self.execution_count else None

    @property
    def cache_hit_rate(self) -> float | None:
        """Hits per successful request; a miss that joins a request in flight counts as neither."""
        return self.cache_hit_count / self.success_count if self.success_count else None


@dataclass(frozen=True)
class Restart:
    """One of several starts of a closed loop: each start may settle into another mode."""

    throughput_infer_per_s: float
    p99_latency_us: float


@dataclass(frozen=True)
class Slice:
    """Figures for requests due from ``start_s`` on, counted from the start of the load."""

    start_s: float
    due_per_s: float
    answered_per_s: float
    p99_latency_us: float | None
    refused_per_s: float = 0.0  # requests due that the server refused


@dataclass(frozen=True)
class Course:
    """How latency changed over the window; see `tuner.load.course`.

    Attributes:
        growth: Growth from the start to the end of the window on a line, as a share of the mean
            latency.
        growth_error: Standard error of that growth; includes the correlation of neighbors.
        relaxation_s: Relaxation time of the latency: half of the sum of its autocorrelations.
    """

    growth: float
    growth_error: float
    relaxation_s: float


class FailureReason(Enum):
    """Why a request failed; only decoupled models have the last two."""

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
        """The phrase for reports, such as `timed out in the queue`."""
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
    """Requests that failed for one reason, and how long clients waited for the error.

    The percentiles count from when a request was due (closed loop: sent), in microseconds.
    """

    count: int
    p50_told_us: float
    p99_told_us: float

    @property
    def text(self) -> str:
        """`120, after 51 ms (p99 310 ms)`."""
        p50, p99 = (digits(us / 1e3) for us in (self.p50_told_us, self.p99_told_us))
        return f"{self.count:,}, after {p50} ms (p99 {p99} ms)"


@dataclass(frozen=True)
class Figures(Facts):
    """Figures of one load, for the requests of all streams, of one stream, or of one shape.

    For several streams together, counts and rates are sums over the streams that share the level,
    and percentiles are over all of their requests.

    Attributes:
        duration_s: Length of the window that the figures are over, not of the whole load.
        left_out_s: Time left out of the window: stalls of the machine, and the delays they caused.
        completed_count: Requests answered without error inside the window.
        failed_count: Requests answered with an error inside the window, rejected ones included.
        rejected_count: Requests that a queue policy refused (``max_queue_size``, queue timeout).
        failures: Failed requests by reason; reasons without a request are absent.
        throughput_infer_per_s: Inferences answered inside the window, per second of the window.
        p50_latency_us: Nearest rank, like all percentiles. Open loop: over the requests *due*
            inside the window, counted from the moment they were due.
            Closed loop: over the requests answered inside the window.
        unanswered_count: Requests due inside the window but without an answer when the load ended
            (open loop only). Each counts as slower than every answered request and as at least
            ``Window.tail_s``, so that a percentile among them is a lower bound.
        batch_size: Inferences in one request.
        sent_per_s: Requests sent inside the window, per second of the window.
        due_per_s: Requests due inside the window, per second of the window (open loop only).
        send_lag_p99_us: 99th percentile of the delay from when a request was due to when the load
            generator sent it (open loop with figures for each request only).
        late_sends: Share of requests sent more than 1 ms after they were due, 0..1
            (open loop only).
        within_bounds: Whether every latency percentile that an SLO bounds was within its bound,
            with lost requests counted as late; ``None`` without such an SLO, or if unknown.
        mean_in_flight: Mean number of requests due (closed loop: sent) and not yet answered.
        backlog: The server was still working on requests when the measurement ended.
        latencies_us: Each request's latency, sorted ascending; not stored on disk.
        by_arrival_us: Each request's latency in the order in which requests were due, infinite for
            refused and failed requests (open loop only). Not stored on disk.
        all_by_arrival_us: As ``by_arrival_us``, with the requests of the time left out of the
            window; None where nothing was left out. Not stored on disk.
        outside_gaps_us: Latencies, ascending, without requests that waited in one of a few gaps
            during which the server answered nothing; None without such a gap. Not stored on disk.
        course: How latency changed over the window; None for closed loops and too few requests.
        background: The stream is part of the background: its rate is fixed, whatever the level.
        shapes: Figures of each shape of a stream's requests, by name; a shape is absent if no
            request of that shape was due.
        in_time_infer_per_s: Shapes only: inferences answered within the stream's SLO on the
            highest percentile, per second; None where no SLO bounds a percentile.
        sequences_at_once: Loads of sequences only: mean number of sequences in progress.
        responses: Decoupled models only: latencies to the first and to the last response. The
            latencies above are those to the response that the SLO on the highest percentile is
            about; without such an SLO, those to the last response.
        server: Statistics of the model under load; None where there are several.
        restarts: Closed loops only: figures of each start; the other figures are over all starts.
        slices: Figures over time; empty unless the window asks for slices (overload).
        warnings: What a reader must know about these figures.
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
    shapes: Annotated[Mapping[str, Figures], Field(exclude_if=is_empty)] = field(
        default_factory=dict
    )
    in_time_infer_per_s: Annotated[float | None, Field(exclude_if=is_none)] = None
    sequences_at_once: Annotated[float | None, Field(exclude_if=is_none)] = None
    background: Annotated[bool, Field(exclude_if=is_empty)] = False
    left_out_s: Annotated[float, Field(exclude_if=is_empty)] = 0.0
    failures: Annotated[Mapping[FailureReason, Failures], Field(exclude_if=is_empty)] = field(
        default_factory=dict
    )
    responses: Annotated[ResponseFigures | None, Field(exclude_if=is_none)] = None
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
        """Figures that an SLO of a stream applies to; a part of a measurement returns itself."""
        del stream
        return self

    @property
    def sustained_infer_per_s(self) -> float:
        """The throughput; of a recording, whose windows are its busiest part, at most the level."""
        if self.load.arrivals is not Arrivals.RECORDING or self.requests_per_s <= self.load.level:
            return self.throughput_infer_per_s
        return self.throughput_infer_per_s * self.load.level / self.requests_per_s

    @property
    def requests_per_s(self) -> float:
        """Requests answered per second of the window."""
        return self.throughput_infer_per_s / self.batch_size

    @property
    def avg_answer_us(self) -> float:
        """Mean time until the last response of an answer, which is what servers count."""
        return self.responses.avg_last_response_us if self.responses else self.avg_latency_us

    @property
    def error_rate(self) -> float | None:
        """Failed requests per request, 0..1; ``None`` if no request was answered."""
        total = self.completed_count + self.failed_count
        return self.failed_count / total if total else None


@dataclass(frozen=True)
class Measurement(Figures):
    """One measurement at one level: the figures of all requests, and those of each stream.

    Attributes:
        host: What server, load generator and machine used meanwhile.
        client_cores: CPU time of the load generator per second while it sent, in cores; may
            exceed 1.
        streams: Figures of each stream by name, background streams included; empty with one
            stream. A stream is absent if no request of the stream was due.
        models: Statistics of every served model, by name.
        disturbances: What on the machine disturbed the measurement.
        wall_s: Duration of the whole measurement, with start, warm-up and tail.
        command: The exact command line of the load generator.
    """

    client_cores: Annotated[float | None, Field(exclude_if=is_none)] = None
    host: HostUse = field(default_factory=HostUse)
    disturbances: Annotated[tuple[Reason, ...], Field(alias="disturbances_data")] = ()
    wall_s: float = 0.0
    command: tuple[str, ...] = ()
    streams: Annotated[Mapping[str, Figures], Field(exclude_if=is_empty)] = field(
        default_factory=dict
    )
    models: Annotated[Mapping[str, ServerStatistics], Field(exclude_if=is_empty)] = field(
        default_factory=dict
    )

    @computed_field(alias="disturbances")  # type: ignore[prop-decorator]
    @property
    def disturbance_texts(self) -> tuple[str, ...]:
        """One sentence each."""
        return tuple(map(sentence, self.disturbances))

    @classmethod
    def of_all(cls, figures: Figures) -> Measurement:
        """A measurement with these figures of all requests, without streams and machine."""
        return cls(**{f.name: getattr(figures, f.name) for f in fields(Figures)})

    def of(self, stream: str) -> Figures | None:
        """A stream's figures; for ``""`` those of all; None if no request of the stream was due."""
        return self.streams.get(stream) if stream and self.streams else self

    @property
    def shared(self) -> Mapping[str, Figures]:
        """Figures of the streams that share the level: all but the background."""
        streams = self.streams or {"": self}
        return {name: stream for name, stream in streams.items() if not stream.background}

    @property
    def requests_per_s(self) -> float:
        """Requests answered per second of the window."""
        if self.streams:  # batch sizes may differ between streams
            return self.completed_count / self.duration_s
        return super().requests_per_s


class Stage(Enum):
    """The part of a run that a measurement belongs to."""

    SEARCH = "search"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True)
class Rejected(Facts):
    """One rejected measurement.

    Attributes:
        reason: Why the measurement does not count.
        level: Requests per second or clients, see `LoadPoint`.
        wall_s: Duration of the measurement.
        measurement: Its figures; None if it ended without figures.
    """

    reason: Reason
    candidate_key: str
    level: float
    wall_s: float
    stage: Annotated[Stage, Field(alias="phase")]
    measurement: Measurement | None = None
