"""The user's spec as strict models: what to serve, under which load, within which latency.

Every field is described here once; the JSON Schema, `docs/spec.md` and the template spec are
made from, or checked against, these descriptions.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tuner.spec.objective import Objective
from tuner.spec.slo import Slo
from tuner.spec.units import Bytes, Percent, Seconds


class Strict(BaseModel):
    """Unknown keys are errors: a mistyped knob must never be ignored silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class ServerMode(Enum):
    LOCAL = "local"
    DOCKER = "docker"
    REMOTE = "remote"


class Server(Strict):
    """Where the real tritonserver comes from."""

    mode: ServerMode = Field(ServerMode.LOCAL, description="local, docker or remote")
    binary: str | None = Field(
        None, description="local: tritonserver to run; default $TUNE_TRITONSERVER, PATH, the wheel"
    )
    args: tuple[str, ...] = Field((), description="further tritonserver arguments, as they are")
    environment: dict[str, str] = Field(
        default_factory=dict, description="variables added to the server's environment"
    )
    image: str | None = Field(None, description="docker: the image, e.g. NVIDIA's tritonserver")
    gpus: Literal["all", "none"] | tuple[int, ...] = Field(
        "all", description="docker and local: GPUs the server may see"
    )
    mounts: dict[str, str] = Field(
        default_factory=dict, description="docker: host path to container path, read-only"
    )
    shm_size: Bytes = Field(
        Bytes(1 << 30), description="docker: size of /dev/shm (each Python instance needs some)"
    )
    http: str | None = Field(None, description="remote: host:port of the HTTP endpoint")
    grpc: str | None = Field(None, description="remote: host:port of the gRPC endpoint")
    metrics: str | None = Field(None, description="remote: host:port of the metrics endpoint")
    load_timeout: Seconds = Field(
        Seconds(120.0), description="a model that takes longer to load counts as hung"
    )
    unload_first: bool = Field(
        False, description="unload before each reload, when two copies do not fit in memory"
    )


class Protocol(Enum):
    GRPC = "grpc"
    HTTP = "http"


class ClosedArrivals(Strict):
    """Clients that send the next request when the last is answered."""

    kind: Literal["closed"]
    concurrency: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None, description="levels to measure; default: search the highest that meets the SLOs"
    )
    max_concurrency: int = Field(256, ge=1, description="upper end of that search")


class PoissonArrivals(Strict):
    """Open loop: requests come when they come, whether or not the server keeps up."""

    kind: Literal["poisson"]
    rate: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None, description="requests per second to measure; default: search the highest"
    )
    max_rate: float = Field(1e5, gt=0, description="upper end of that search, per second")


class TraceArrivals(Strict):
    """Open loop: gaps between requests from a file, one a line in microseconds, rescaled."""

    kind: Literal["trace"]
    file: Path = Field(description="gaps between requests, microseconds, one a line")
    rate: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None, description="mean rates to rescale the trace to; default: search the highest"
    )
    max_rate: float = Field(1e5, gt=0, description="upper end of that search, per second")


ArrivalsSpec = Annotated[
    ClosedArrivals | PoissonArrivals | TraceArrivals, Field(discriminator="kind")
]


class UniformRepeat(Strict):
    """Every unique input is equally likely."""

    kind: Literal["uniform"]


class ZipfRepeat(Strict):
    """The n-th most popular input is asked for in proportion to n to the minus exponent."""

    kind: Literal["zipf"]
    exponent: float = Field(0.9, ge=0, le=3)


class NoRepeat(Strict):
    """Inputs are used in turn, each as often as the others."""

    kind: Literal["none"]


Repeat = Annotated[UniformRepeat | ZipfRepeat | NoRepeat, Field(discriminator="kind")]


class RandomInputs(Strict):
    """Random tensors of the model's shapes, drawn from a seed."""

    kind: Literal["random"]
    unique: int = Field(1000, ge=1, description="number of different inputs")
    repeat: Repeat = Field(NoRepeat(kind="none"), description="how often each comes back")
    shapes: dict[str, tuple[int, ...]] = Field(
        default_factory=dict, description="shape of inputs with variable dimensions, no batch"
    )
    int_range: tuple[int, int] = Field((0, 100), description="integers are drawn from this range")
    string_length: int = Field(32, ge=1, description="length of random strings")


class FileInputs(Strict):
    """perf_analyzer's own JSON of inputs, or a recorded log in the same form."""

    kind: Literal["file"]
    file: Path = Field(description="JSON in perf_analyzer's input format")
    repeat: Repeat = Field(NoRepeat(kind="none"), description="how often each comes back")


Inputs = Annotated[RandomInputs | FileInputs, Field(discriminator="kind")]


class Workload(Strict):
    """The load the model must stand."""

    protocol: Protocol = Field(Protocol.GRPC, description="grpc or http")
    arrivals: ArrivalsSpec = Field(PoissonArrivals(kind="poisson"), description="how requests come")
    inputs: Inputs = Field(RandomInputs(kind="random"), description="what requests carry")
    batch_size: int = Field(1, ge=1, description="inputs in one request")
    window: Seconds = Field(
        Seconds(3.0), description="length of a measurement; longer when the SLO needs more requests"
    )
    warmup: Seconds = Field(Seconds(0.5), description="load before the window, not measured")
    max_window: Seconds = Field(Seconds(20.0), description="a measurement never takes longer")
    perf_analyzer: str | None = Field(
        None, description="binary to use; default $TUNE_PERF_ANALYZER, PATH, the wheel"
    )


class IntRange(Strict):
    """A whole number between two bounds, both included; ``or`` adds one value outside them."""

    int_: Annotated[tuple[int, int], Field(alias="int", description="lowest and highest value")]
    log: bool = Field(False, description="search by ratio rather than by difference")
    step: int = Field(1, ge=1, description="distance between values")
    or_: Literal["unset"] | int | None = Field(
        None, alias="or", description="one more value, a choice of its own: a number or unset"
    )


class Choice(Strict):
    """One of the listed values; ``unset`` leaves the field out, ``off`` and ``on`` a message."""

    choice: tuple[bool | int | float | str | Bytes, ...] = Field(min_length=1)


class Subsets(Strict):
    """Every subset of the listed sizes with 1 to ``at_most`` members; ``or: unset`` adds none."""

    subsets: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    at_most: int = Field(2, ge=1)
    or_: Literal["unset"] | None = Field(None, alias="or")


ParameterSpec = IntRange | Choice | Subsets


class Strategy(Enum):
    TPE = "tpe"
    RANDOM = "random"
    GRID = "grid"


class Search(Strict):
    """How the space is searched."""

    strategy: Strategy = Field(Strategy.TPE, description="tpe, random or grid")
    seed: int = Field(0, ge=0, description="same seed, same proposals for the same scores")
    startup_trials: int = Field(8, ge=1, description="random proposals before the model is used")
    patience: int | None = Field(
        None, ge=1, description="stop after this many trials without a better one"
    )


class Budget(Strict):
    """When to stop searching; whichever comes first."""

    trials: int = Field(40, ge=1, description="configs to measure, the current one included")
    time: Seconds | None = Field(None, description="time for the search, confirmation excluded")
    max_failed: Percent = Field(
        Percent(0.5), description="share of failed trials above which the run ends with exit 5"
    )


class Confirm(Strict):
    """How the winner must prove itself."""

    rounds: int = Field(3, ge=1, description="times each finalist is measured again, interleaved")
    min_gain: Percent = Field(Percent(0.02), description="smaller gains are not worth a change")
    finalists: int = Field(2, ge=1, description="best candidates that are measured again")


class Spec(Strict):
    """A whole spec file."""

    model: str = Field(description="the model's name: its directory in the repository")
    repository: Path = Field(description="model repository, relative to the spec file")
    server: Server = Field(default_factory=lambda: Server(), description="the tritonserver")
    workload: Workload = Field(default_factory=lambda: Workload(), description="the load")
    slo: tuple[Slo, ...] = Field(
        min_length=1, description="what every answer must meet, e.g. p99_latency <= 60ms"
    )
    objective: Objective = Field(
        default_factory=Objective.goodput,
        description="maximize goodput, minimize p99_latency at 300/s, minimize gpu_memory at 300/s",
    )
    space: dict[str, ParameterSpec] = Field(
        description="ModelConfig path, or response_cache.size, to the values to try"
    )
    search: Search = Field(default_factory=lambda: Search(), description="the search")
    budget: Budget = Field(default_factory=lambda: Budget(), description="when to stop")
    confirm: Confirm = Field(default_factory=lambda: Confirm(), description="the last proof")
