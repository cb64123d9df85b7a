"""The workload of a spec: protocol, inputs and how they repeat, the window."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tuner.facts import is_empty, is_none
from tuner.spec.arrivals import ArrivalsSpec, ClosedArrivals, PoissonArrivals
from tuner.spec.fields import (
    KIND,
    Count,
    Cpus,
    Duration,
    Integer,
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


class UniformRepeat(Strict):
    """Every unique input is equally likely."""

    kind: Literal["uniform"] = KIND

    @property
    def exponent(self) -> float:
        """The exponent of `ZipfRepeat` with the same effect."""
        return 0.0


class ZipfRepeat(Strict):
    """The n-th most popular input is sent in proportion to n to the power of -exponent."""

    kind: Literal["zipf"] = KIND
    exponent: Annotated[float, Field(strict=True, ge=0, le=3)] = Field(
        0.9, description="0 is uniform; web traffic is near 0.9"
    )


class DuplicatesRepeat(Strict):
    """Some requests repeat an earlier one of the same measurement, the others are new.

    The one to repeat is drawn evenly from all requests before it, so what was sent often is sent
    more often.
    """

    kind: Literal["duplicates"] = KIND
    share: Percent = Field(description="share of the requests that repeat an earlier one")


class LogRepeat(Strict):
    """A recorded order: the log is replayed in a loop, from another place in each measurement."""

    kind: Literal["log"] = KIND
    file: SpecFile = Field(description="numbers of inputs, from 0, one per line, in the order sent")


class NoRepeat(Strict):
    """Inputs are used in turn; random ones are new in every measurement, a file starts over."""

    kind: Literal["none"] = KIND


Repeat = Annotated[
    UniformRepeat | ZipfRepeat | DuplicatesRepeat | LogRepeat | NoRepeat,
    Field(discriminator="kind"),
]
_REPEAT = Field(NoRepeat(kind="none"), description="how often each comes back")


class RandomInputs(Strict):
    """Random tensors of the model's shapes, drawn from a seed."""

    kind: Literal["random"] = KIND
    unique: Count | None = Field(
        None,
        description="number of different inputs; default: 1000 for uniform and zipf, all of a log, "
        "else as many as a measurement sends",
    )
    repeat: Repeat = _REPEAT
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

    def unique_of(self, shape: RequestShape) -> int | None:
        """Number of different inputs of one shape, according to its share; None: as ``unique``."""
        return None if self.unique is None else max(round(self.unique * shape.share), 1)


class FileInputs(Strict):
    """perf_analyzer's own JSON of inputs, or a recorded log in the same form."""

    kind: Literal["file"] = KIND
    file: RequestsFile = Field(
        description="JSON in perf_analyzer's input format: a list of requests, or of sequences"
    )
    repeat: Repeat = _REPEAT


class RecordingInputs(Strict):
    """What the lines of a recording hold: the default of requests that come as recorded."""

    kind: Literal["recording"] = KIND
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
        exclude_if=is_none,
        description="of its requests; 1 is the highest; the model's dynamic batcher needs at least "
        "as many priority_levels; default: the model's default_priority_level",
    )
    version: Count | None = Field(
        None,
        exclude_if=is_none,
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
        exclude_if=is_empty,
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
    def starts(self) -> int:
        """How often each measurement starts the load."""
        return self.arrivals.restarts if isinstance(self.arrivals, ClosedArrivals) else 1

    @property
    def in_json(self) -> bool:
        """Whether inputs are sent as JSON; in shared memory they never are."""
        return self.protocol is Protocol.HTTP_JSON and self.shared_memory is SharedMemory.NONE
