"""The workload of a spec: protocol, arrivals, inputs and how they repeat, the window."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from tuner.spec.fields import (
    Count,
    Cpus,
    Duration,
    Integer,
    PositiveNumber,
    Program,
    RequestsFile,
    SpecFile,
    Strict,
    pair,
)
from tuner.spec.shapes import RequestShape, ShapeSpec, request_shapes
from tuner.spec.slo import Slo
from tuner.spec.units import Percent, Rate, Seconds


class Protocol(Enum):
    GRPC = "grpc"
    HTTP = "http"
    HTTP_JSON = "http-json"

    @property
    def service(self) -> str:
        """The endpoint of the server that clients use."""
        return self.value.partition("-")[0]

    @property
    def over_http(self) -> bool:
        return self is not Protocol.GRPC


class SharedMemory(Enum):
    NONE = "none"
    SYSTEM = "system"


def _not_of_gpus(kind: object) -> object:
    if kind == "cuda":
        raise ValueError(
            "cuda is not supported: neither load generator of tune uses memory of a GPU. Write "
            "system, and measure what cuda adds to the written config: "
            "perf_analyzer --shared-memory=cuda"
        )
    return kind


_KIND = Field(description="which of the kinds this is; the other fields depend on it")
_MAX_RATE = Field(1e5, description="upper end of that search, per second")
_Rates = Annotated[tuple[PositiveNumber, ...], Field(min_length=1)]


class ClosedArrivals(Strict):
    """Clients that send the next request when the last is answered."""

    kind: Literal["closed"] = _KIND
    concurrency: Annotated[tuple[Count, ...], Field(min_length=1)] | None = Field(
        None, description="levels to measure; default: search for the highest that meets the SLOs"
    )
    max_concurrency: Count = Field(256, description="upper end of that search")
    restarts: Count = Field(
        3,
        description="times the load is started in each measurement, each for a part of the window: "
        "a closed loop settles into one of several modes",
    )


class PoissonArrivals(Strict):
    """Open loop: requests arrive at random times, whether or not the server keeps up."""

    kind: Literal["poisson"] = _KIND
    rate: _Rates | None = Field(
        None, description="requests per second to measure; default: search for the highest"
    )
    max_rate: PositiveNumber = _MAX_RATE


class ConstantArrivals(Strict):
    """Open loop: requests at equal gaps, as cameras and sensors send them.

    Requests of many users come at random times and queue by chance, which these do not.
    """

    kind: Literal["constant"] = _KIND
    rate: _Rates | None = Field(
        None, description="requests per second to measure; default: search for the highest"
    )
    max_rate: PositiveNumber = _MAX_RATE


#: Least number of busy times in a window: with fewer, the result depends on chance.
BUSY_TIMES = 30


class BurstArrivals(Strict):
    """Open loop: Poisson arrivals that switch between a calm and a busy rate by chance.

    A window is long enough for 30 busy times, on average.
    """

    kind: Literal["bursts"] = _KIND
    rate: _Rates | None = Field(
        None, description="mean rates over calm and busy times; default: search for the highest"
    )
    max_rate: PositiveNumber = _MAX_RATE
    burst_ratio: Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)] = Field(
        5.0, description="busy rate over calm rate"
    )
    burst_share: Percent = Field(Percent(0.2), description="share of the time that is busy")
    burst_length: Duration = Field(
        Seconds(0.2), description="mean length of a busy time; lengths are exponential"
    )

    @field_validator("burst_share")
    @classmethod
    def _some_of_each(cls, share: Percent) -> Percent:
        if not 0 < share < 1:
            raise ValueError(f"must be above 0% and below 100%, not {share}")
        return share

    @property
    def cycle_s(self) -> float:
        """Mean seconds from one busy time to the next."""
        return float(self.burst_length) / float(self.burst_share)


class TraceArrivals(Strict):
    """Open loop: gaps between requests from a file, one per line in microseconds, rescaled."""

    kind: Literal["trace"] = _KIND
    file: SpecFile = Field(description="gaps between requests in microseconds, one per line")
    rate: _Rates | None = Field(
        None, description="mean rates to rescale the trace to; default: search for the highest"
    )
    max_rate: PositiveNumber = _MAX_RATE


class RecordingArrivals(Strict):
    """Open loop: the requests of a recording, each at its own time; see docs/recordings.md.

    A measurement that is shorter replays stretches of it, the busiest one among them.
    """

    kind: Literal["recording"] = _KIND
    file: SpecFile = Field(description="JSON lines, one for each request; tune record makes one")
    pace: _Rates | None = Field(
        None,
        description="times its own speed at which it is replayed, such as [1, 2]; default: its "
        "pattern in time stays, and the level says how many requests come",
    )
    rate: _Rates | None = Field(
        None,
        description="mean rates that the pattern is scaled to; default: search for the highest",
    )
    max_rate: PositiveNumber = _MAX_RATE


class SequenceArrivals(Strict):
    """Open loop: sequences of requests, for models with ``sequence_batching``.

    So many run at once, each on a separate clock; where one ends, the next begins. A request
    waits for the answer to the one before it, and that is part of its latency.
    """

    kind: Literal["sequences"] = _KIND
    length: Count | None = Field(
        None,
        description="requests of a sequence; left out where requests come from a file of sequences",
    )
    longest: Count | None = Field(
        None, description="lengths are drawn evenly from length to this; default: all are the same"
    )
    interval: Duration = Field(description="from one request of a sequence to the next")
    count_output: str | None = Field(
        None,
        description="output of one number in which the model counts the requests of a sequence, "
        "from 1: an answer out of order is a failure; default: the order is kept, not checked",
    )
    rate: _Rates | None = Field(
        None,
        description="requests per second to measure; so many times interval is the number of "
        "sequences at once; default: search for the highest number of these",
    )
    max_rate: PositiveNumber = _MAX_RATE

    @property
    def lengths(self) -> tuple[int, int] | None:
        """The fewest and the most requests of a sequence; None: a file has the sequences."""
        return None if self.length is None else (self.length, self.longest or self.length)


ArrivalsSpec = Annotated[
    ClosedArrivals
    | PoissonArrivals
    | ConstantArrivals
    | BurstArrivals
    | TraceArrivals
    | RecordingArrivals
    | SequenceArrivals,
    Field(discriminator="kind"),
]


class UniformRepeat(Strict):
    """Every unique input is equally likely."""

    kind: Literal["uniform"] = _KIND


class ZipfRepeat(Strict):
    """The n-th most popular input is sent in proportion to n to the power of -exponent."""

    kind: Literal["zipf"] = _KIND
    exponent: Annotated[float, Field(strict=True, ge=0, le=3)] = Field(
        0.9, description="0 is uniform; web traffic is near 0.9"
    )


class DuplicatesRepeat(Strict):
    """Some requests repeat an earlier one of the same measurement, the others are new.

    The one to repeat is drawn evenly from all requests before it, so what was sent often is sent
    more often.
    """

    kind: Literal["duplicates"] = _KIND
    share: Percent = Field(description="share of the requests that repeat an earlier one")


class LogRepeat(Strict):
    """A recorded order: the log is replayed in a loop, from another place in each measurement."""

    kind: Literal["log"] = _KIND
    file: SpecFile = Field(description="numbers of inputs, from 0, one per line, in the order sent")


class NoRepeat(Strict):
    """Inputs are used in turn; random ones are new in every measurement, a file starts over."""

    kind: Literal["none"] = _KIND


Repeat = Annotated[
    UniformRepeat | ZipfRepeat | DuplicatesRepeat | LogRepeat | NoRepeat,
    Field(discriminator="kind"),
]


class RandomInputs(Strict):
    """Random tensors of the model's shapes, drawn from a seed."""

    kind: Literal["random"] = _KIND
    unique: Count | None = Field(
        None,
        description="number of different inputs; default: 1000 for uniform and zipf, all of a log, "
        "else as many as a measurement sends",
    )
    repeat: Repeat = Field(NoRepeat(kind="none"), description="how often each comes back")
    shapes: dict[str, ShapeSpec] = Field(
        default_factory=dict,
        description="shapes of inputs with variable dimensions, by name, without the batch: "
        "[128], or several with their shares; an optional input is sent only where its shape is "
        "given",
    )
    int_range: Annotated[tuple[Integer, Integer], BeforeValidator(pair)] = Field(
        (0, 100), description="integers are drawn from this range, lowest and highest"
    )
    string_length: Count = Field(32, description="length of random strings")

    @property
    def request_shapes(self) -> tuple[RequestShape, ...]:
        """The shapes of the requests, each with its share."""
        return request_shapes(self.shapes)


class FileInputs(Strict):
    """perf_analyzer's own JSON of inputs, or a recorded log in the same form."""

    kind: Literal["file"] = _KIND
    file: RequestsFile = Field(
        description="JSON in perf_analyzer's input format: a list of requests, or of sequences"
    )
    repeat: Repeat = Field(NoRepeat(kind="none"), description="how often each comes back")


class RecordingInputs(Strict):
    """What the lines of a recording hold: the default of requests that come as recorded."""

    kind: Literal["recording"] = _KIND
    file: RequestsFile | None = Field(
        None, description="JSON in perf_analyzer's input format, for lines that name its entries"
    )
    int_range: Annotated[tuple[Integer, Integer], BeforeValidator(pair)] = Field(
        (0, 100), description="as of random inputs, for lines that hold shapes only"
    )
    string_length: Count = Field(32, description="likewise")

    @property
    def repeat(self) -> NoRepeat:
        """Repetitions are those of the recording."""
        return NoRepeat(kind="none")


Inputs = Annotated[RandomInputs | FileInputs | RecordingInputs, Field(discriminator="kind")]


class CacheState(Enum):
    WARM = "warm"
    EMPTY = "empty"


class Requests(Strict):
    """What each request carries."""

    inputs: Inputs = Field(RandomInputs(kind="random"), description="what requests carry")
    batch_size: Count = Field(1, description="inputs in one request")


class StreamSpec(Requests):
    """A stream of requests for one model, with a share of the load and SLOs of the stream."""

    model: str = Field(description="the model that gets the requests: one of models")
    share: Percent | None = Field(
        None,
        description="share of the load; the level of the load is the requests per second of all "
        "streams with a share; default: all of it, where no other stream has a share",
    )
    rate: Rate | None = Field(
        None,
        description="instead of a share: a constant background load, outside the objective; its "
        "SLOs count",
    )
    priority: Count | None = Field(
        None,
        exclude_if=lambda level: level is None,
        description="of its requests; 1 is the highest; the model's dynamic batcher needs at least "
        "as many priority_levels; default: the model's default_priority_level",
    )
    version: Count | None = Field(
        None,
        exclude_if=lambda version: version is None,
        description="of the model, that its requests ask for; default: the server's choice, the "
        "latest that it serves",
    )
    slo: tuple[Slo, ...] = Field((), description="limits that this stream must meet")


class Workload(Strict):
    """How requests arrive and how they are measured; what all streams have in common."""

    protocol: Protocol = Field(
        Protocol.GRPC,
        description="protocol of the clients; http sends tensors in binary, http-json as JSON, as "
        "clients without Triton's library do",
    )
    shared_memory: Annotated[SharedMemory, BeforeValidator(_not_of_gpus)] = Field(
        SharedMemory.NONE,
        exclude_if=lambda kind: kind is SharedMemory.NONE,
        description="where a request's inputs lie: none, in the request itself; system, in memory "
        "that clients share with a server on their machine (server.mode local or docker)",
    )
    shared_outputs: bool = Field(
        False,
        exclude_if=lambda shared: not shared,
        description="with shared_memory, the server writes outputs of a fixed size there too, "
        "those of 64 requests one beside the other; others come back in the response",
    )
    arrivals: ArrivalsSpec = Field(
        PoissonArrivals(kind="poisson"), description="how requests arrive"
    )
    cache: CacheState = Field(
        CacheState.WARM,
        description="state of the response cache when a measurement begins: warm is what this "
        "traffic leaves there in the long run, empty is a server just started",
    )
    window: Duration = Field(
        Seconds(3.0),
        description="length of a measurement, by default 30s under a recording; half of it in "
        "searches and rounds; longer where an SLO needs more, and, except in closed loops, at "
        "least ten times the largest latency SLO (five times in searches and rounds)",
    )
    warmup: Seconds = Field(
        Seconds(0.5),
        description="load before the window, not measured; except in closed loops, at least twice "
        "the largest latency SLO (once in searches and rounds)",
    )
    max_window: Seconds = Field(
        Seconds(900.0),
        description="longest measurement, unless ten times the largest latency SLO is longer; a "
        "load so low that its percentile would need more is not judged",
    )
    perf_analyzer: Program | None = Field(
        None, description="perf_analyzer to run; default: $TUNE_PERF_ANALYZER, PATH, the wheel"
    )
    cpus: Cpus = Field(
        None,
        description="CPUs the load generator may use; default: all, with priority over a server "
        "here, or separate CPUs where it needs much; all: no limit",
    )

    @property
    def in_json(self) -> bool:
        """Whether inputs are sent as JSON; in shared memory they never are."""
        return self.protocol is Protocol.HTTP_JSON and self.shared_memory is SharedMemory.NONE
