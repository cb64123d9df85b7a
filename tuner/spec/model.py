"""The user's spec as strict models: what to serve, under which load, within which latency.

Every field is described here once; the JSON Schema, `docs/spec.md` and the template spec are
made from, or checked against, these descriptions. Rules between fields of one model are
validators here; rules between models are in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)

from tuner.spec.check import Check
from tuner.spec.environment import EnvironmentValue
from tuner.spec.fields import (
    Count,
    Flag,
    Natural,
    Program,
    Scalar,
    SpecPath,
    Strict,
    WholeNumber,
    gpu_numbers,
    number_or_unset,
    pair,
    unset,
)
from tuner.spec.objective import Objective
from tuner.spec.slo import Slo
from tuner.spec.units import Bytes, Percent, Seconds
from tuner.spec.workload import Workload


class ServerMode(Enum):
    LOCAL = "local"
    DOCKER = "docker"
    REMOTE = "remote"


@dataclass(frozen=True)
class ModeFacts:
    """What a server of a mode is.

    Attributes:
        fields: Of ``server``, those that only some modes have.
        needed: Those that must be given, with what they say.
        managed: tune starts its servers, and ends them.
    """

    fields: tuple[str, ...]
    needed: Mapping[str, str] = field(default_factory=dict)
    managed: bool = True


MODES = {
    ServerMode.LOCAL: ModeFacts(("binary", "args", "environment", "gpus")),
    ServerMode.DOCKER: ModeFacts(
        ("args", "environment", "gpus", "image", "mounts", "shm_size"),
        needed={"image": "the image's name"},
    ),
    ServerMode.REMOTE: ModeFacts(
        ("http", "grpc", "metrics"),
        needed={"http": "its host:port", "grpc": "its host:port"},
        managed=False,
    ),
}

#: Arguments of tritonserver that tune gives it itself.
OWN_ARGUMENTS = (
    "--model-repository",
    "--model-store",
    "--model-control-mode",
    *(
        argument
        for service in ("http", "grpc", "metrics")
        for argument in (f"--{service}-address", f"--{service}-port", f"--allow-{service}")
    ),
    "--grpc-restricted-protocol",
    "--http-restricted-api",
)


class Server(Strict):
    """Where the real tritonserver comes from."""

    mode: ServerMode = Field(
        ServerMode.LOCAL,
        description="local starts a tritonserver program, docker a container; remote uses a "
        "server that runs already, in explicit model control",
    )
    binary: Program | None = Field(
        None, description="local: tritonserver to run; default $TUNE_TRITONSERVER, PATH, the wheel"
    )
    args: tuple[str, ...] = Field(
        (), description="local and docker: further tritonserver arguments, as they are"
    )
    environment: dict[str, EnvironmentValue] = Field(
        default_factory=dict,
        description="local and docker: variables added to the server's environment; "
        "NAME: {from: VARIABLE} takes a value from tune's own, which is stored nowhere",
    )
    image: str | None = Field(None, description="docker: the image, e.g. NVIDIA's tritonserver")
    gpus: Annotated[Literal["all", "none"] | tuple[Natural, ...], BeforeValidator(gpu_numbers)] = (
        Field("all", description="local and docker: GPUs the server may see: all, none or numbers")
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
    unload_first: Flag = Field(
        False, description="unload before each reload, when two copies do not fit in memory"
    )

    @property
    def managed(self) -> bool:
        """Whether tune starts it, and ends it."""
        return MODES[self.mode].managed


class IntRange(Strict):
    """A whole number between two bounds, both included; ``or`` adds one value outside them."""

    int_: Annotated[tuple[WholeNumber, WholeNumber], BeforeValidator(pair)] = Field(
        alias="int", description="lowest and highest value"
    )
    log: Flag = Field(False, description="search by ratio rather than by difference")
    step: Count = Field(1, description="distance between values")
    or_: Annotated[Literal["unset"] | int | None, BeforeValidator(number_or_unset)] = Field(
        None, alias="or", description="one more value, a choice of its own: a number or unset"
    )

    @field_validator("log")
    @classmethod
    def _log_from_one(cls, log: bool, info: ValidationInfo) -> bool:
        low, _ = info.data.get("int_", (1, 1))
        if log and low < 1:
            raise ValueError(f"ratios need a lowest value of 1 or more, not {low}: start at 1")
        return log

    @field_validator("step")
    @classmethod
    def _step_fits(cls, step: int, info: ValidationInfo) -> int:
        low, high = info.data.get("int_", (0, 0))
        if step != 1 and info.data.get("log"):
            raise ValueError("step and log: true do not go together")
        if (high - low) % step:
            nearest = high - (high - low) % step
            raise ValueError(f"steps of {step} from {low} end at {nearest}, not at {high}")
        return step

    @field_validator("or_")
    @classmethod
    def _or_outside(cls, value: str | int | None, info: ValidationInfo) -> str | int | None:
        low, high = info.data.get("int_", (0, -1))
        if isinstance(value, int) and low <= value <= high:
            raise ValueError(f"{value} is in the range {low} to {high} already")
        return value


class Choice(Strict):
    """One of the listed values; ``unset`` leaves the field out, ``off`` and ``on`` a message.

    YAML reads ``off`` and ``on`` as booleans, and so do we. Values of ``response_cache.size`` are
    False or sizes as text (``64MiB``): read them with `parse_bytes`.
    """

    choice: tuple[Scalar, ...] = Field(
        min_length=1,
        description="the values: numbers, text, off and on, unset; sizes for response_cache.size",
    )

    @field_validator("choice")
    @classmethod
    def _distinct(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[tuple[type, Any]] = set()
        for value in values:
            if (type(value), value) in seen:
                raise ValueError(f"{value} is listed twice")
            seen.add((type(value), value))
        return values


class Subsets(Strict):
    """Every subset of the listed sizes with 1 to ``at_most`` members; ``or: unset`` adds none."""

    subsets: tuple[Count, ...] = Field(min_length=1, description="the sizes to choose from")
    at_most: Count = Field(2, description="largest number of sizes in a subset")
    or_: Annotated[Literal["unset"] | None, BeforeValidator(unset)] = Field(
        None, alias="or", description="one more value, a choice of its own: unset"
    )

    @field_validator("subsets")
    @classmethod
    def _distinct(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(sizes)) < len(sizes):
            raise ValueError("a size is listed twice")
        return sizes

    @field_validator("at_most")
    @classmethod
    def _at_most_listed(cls, at_most: int, info: ValidationInfo) -> int:
        sizes = info.data.get("subsets")
        if sizes and at_most > max(2, len(sizes)):  # the default is no mistake beside one size
            raise ValueError(f"{at_most} is more than the {len(sizes)} sizes listed")
        return at_most


ParameterSpec = IntRange | Choice | Subsets


def _parameter_kind(value: Any) -> str | None:
    if isinstance(value, ParameterSpec):
        return type(value).__name__
    keys = {"int": "IntRange", "choice": "Choice", "subsets": "Subsets"}
    found = [kind for key, kind in keys.items() if isinstance(value, dict) and key in value]
    return found[0] if found else None


_TaggedParameter = Annotated[
    Annotated[IntRange, Tag("IntRange")]
    | Annotated[Choice, Tag("Choice")]
    | Annotated[Subsets, Tag("Subsets")],
    Discriminator(_parameter_kind),
]


class Strategy(Enum):
    TWIN = "twin"
    GP = "gp"
    TPE = "tpe"
    RANDOM = "random"
    GRID = "grid"
    MODEL_ANALYZER = "model-analyzer"


class ModelAnalyzerMode(Enum):
    """Searches that NVIDIA's Model Analyzer has."""

    QUICK = "quick"
    OPTUNA = "optuna"
    BRUTE = "brute"


class Search(Strict):
    """How the space is searched."""

    strategy: Strategy = Field(
        Strategy.TWIN,
        description="twin simulates the scheduler and needs the fewest trials; gp (a Gaussian "
        "process) and tpe learn from their trials alone; random and grid do not learn; "
        "model-analyzer is NVIDIA's own search",
    )
    mode: ModelAnalyzerMode = Field(
        ModelAnalyzerMode.QUICK, description="strategy model-analyzer: which of its searches"
    )
    stop_below: Percent = Field(
        Percent(0.01),
        description="strategy twin: stop when another trial can be expected to gain less than this",
    )
    seed: Natural = Field(0, description="same seed, same proposals for the same scores")
    startup_trials: Count = Field(
        8, description="random proposals before the model is used; strategy gp needs no more than 4"
    )
    patience: Count | None = Field(
        None, description="stop after this many trials without a better one"
    )


class Budget(Strict):
    """When to stop searching; whichever comes first."""

    trials: Count = Field(40, description="configs to measure, the current one included")
    time: Seconds | None = Field(None, description="time for the search, confirmation excluded")
    max_failed: Percent = Field(
        Percent(0.5), description="share of failed trials above which the run ends with exit 5"
    )


class Confirm(Strict):
    """How the winner must prove itself."""

    rounds: Annotated[int, Field(strict=True, ge=3)] = Field(
        3,
        description="times each finalist is measured again, interleaved; twice as often when "
        "that leaves it open",
    )
    min_gain: Percent = Field(Percent(0.02), description="smaller gains are not worth a change")
    finalists: Count = Field(2, description="best candidates that are measured again")
    soak: Seconds = Field(
        Seconds(30.0),
        description="length of the last load on what is written, or kept, at the load it is "
        "credited with; up to ten times as long where the SLO needs more; 0: no such load",
    )
    tolerance: Annotated[float, Field(strict=True, ge=0, le=1)] = Field(
        1e-3,
        description="how far the winner's floats may be from the current config's answers, "
        "relative; 0 is exact, half precision may need 0.01",
    )


class Spec(Strict):
    """A whole spec file."""

    model: str = Field(
        min_length=1, description="the model's name: its directory in the repository"
    )
    repository: SpecPath = Field(description="model repository, relative to the spec file")
    server: Server = Field(default_factory=Server, description="the tritonserver")
    workload: Workload = Field(default_factory=Workload, description="the load")
    slo: tuple[Slo, ...] = Field(
        min_length=1, description="what every answer must meet, e.g. p99_latency <= 60ms"
    )
    objective: Objective = Field(
        default_factory=Objective.goodput,
        description="maximize goodput, minimize p99_latency at 300/s, minimize gpu_memory at 300/s",
    )
    space: dict[str, _TaggedParameter] = Field(
        min_length=1, description="ModelConfig path, or response_cache.size, to the values to try"
    )
    search: Search = Field(default_factory=Search, description="the search")
    budget: Budget = Field(default_factory=Budget, description="when to stop")
    confirm: Confirm = Field(default_factory=Confirm, description="the last proof")
    check: Check = Field(default_factory=Check, description="the nightly's limits")
