"""The user's spec as strict models: what to serve, under which load, within which latency.

Every field is described here once; the JSON Schema, `docs/spec.md` and the template spec are
made from, or checked against, these descriptions. Rules between fields of one model are
validators here; rules between models are in `checks.py`. A spec is written in one of two forms,
see `forms.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from tuner.facts import is_empty, is_none
from tuner.spec.fields import (
    Count,
    Natural,
    PositiveNumber,
    SpaceSpec,
    SpecFile,
    SpecPath,
    Strict,
    WriteTo,
)
from tuner.spec.forms import CARRIED, as_written, long_form
from tuner.spec.metrics import Scope
from tuner.spec.paths import CONFIG_NAME
from tuner.spec.server import ServerSpec
from tuner.spec.slo import Objective, Slo
from tuner.spec.units import Percent, Seconds
from tuner.spec.workload import StreamSpec, Workload


class StrategyName(Enum):
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


class Recipe(Enum):
    """Configs by name; `tuner/space/recipes.py` has their values."""

    MEMORY = "memory"
    THROUGHPUT = "throughput"
    BALANCED = "balanced"


class Search(Strict):
    """How the space is searched."""

    strategy: StrategyName = Field(
        StrategyName.GP,
        description="gp (a Gaussian process begun with designed trials) needs few trials; "
        "tpe is Optuna's; random and grid do not learn; model-analyzer is NVIDIA's own search",
    )
    mode: ModelAnalyzerMode = Field(
        ModelAnalyzerMode.QUICK, description="strategy model-analyzer: which of its searches to use"
    )
    seed: Natural = Field(0, description="same seed, same proposals for the same scores")
    startup_trials: Count = Field(
        8, description="random proposals before the model is used; strategy gp needs no more than 4"
    )
    first: SpecFile | None = Field(
        None,
        exclude_if=is_none,
        description="results of NVIDIA's Model Analyzer, a checkpoint (0.ckpt) or "
        "metrics-model-inference.csv: its best configs are measured first, its figures not used",
    )
    recipes: tuple[Recipe, ...] = Field(
        (),
        exclude_if=is_empty,
        description="configs by name that are measured first, each as near as the space has it: "
        "memory (3 instances, batches of 8), throughput (1 and 16), balanced (2 and 4)",
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
        12,
        description="rounds, in each of which the finalists and the current config are measured "
        "again, at most; fewer where the outcome is clear before",
    )
    time: Seconds | None = Field(
        None,
        description="time for the rounds; by default as long as the search took, and at least 2m",
    )
    min_gain: Percent = Field(
        Percent(0.02),
        description="smaller gains are not worth a change; with strategy gp the search ends when "
        "another trial is expected to gain less than this",
    )
    finalists: Count = Field(2, description="best candidates that are measured again")
    soak: Seconds = Field(
        Seconds(30.0),
        description="length of the final soak of the config that is written, and of each check's, "
        "at the load it is credited with; up to 20 times as long where the SLO needs more; "
        "0: no soak",
    )
    headroom: Percent = Field(
        Percent(0.03),
        description="the config is credited with this much less than what its rounds and its soak "
        "show to be sustained, since a sustained load may fail the next time; listed loads and "
        "clients are as listed",
    )
    tolerance: Annotated[float, Field(strict=True, ge=0, le=1)] = Field(
        1e-3,
        description="largest relative difference allowed between the floats in the winner's "
        "answers "
        "and the current config's; 0: none; half precision may need 0.01",
    )
    tolerances: dict[str, Annotated[float, Field(strict=True, ge=0, le=1)]] = Field(
        default_factory=dict,
        description="the same for single outputs, by name, such as {logits: 0.02}: of two versions "
        "of a model, such as one in half precision",
        examples=[{"logits": 0.02}],
    )

    @property
    def least_ratio(self) -> float:
        """The least ratio to the current config that is a gain worth a change."""
        return 1.0 + float(self.min_gain)


class Check(Strict):
    """When `tune check` calls the config in the repository worse than the accepted result."""

    at: PositiveNumber | None = Field(
        None,
        description="load at which every SLO must be met: requests per second, or clients of a "
        "closed loop, in place of the soak of the credited load; default: any load; of listed "
        "loads, the one the accepted result sustained",
    )
    warn: Percent = Field(Percent(0.03), description="a loss above this is reported")
    fail: Percent = Field(Percent(0.05), description="a loss above this is a regression, exit 12")
    rounds: Annotated[int, Field(strict=True, ge=3)] = Field(
        10,
        description="rounds, each on a fresh server, at most; fewer where the outcome is clear "
        "before; all of them for a result to be accepted",
    )
    nights: Percent = Field(
        Percent(0.015),
        description="how much a night's result differs from another's as a rule; from three nights "
        "on, what they differed by counts if it is more",
    )

    @field_validator("fail")
    @classmethod
    def _fail_above_warn(cls, fail: Percent, info: ValidationInfo) -> Percent:
        warn = info.data.get("warn")
        if warn is not None and fail < warn:
            raise ValueError(
                f"{fail} is less than warn, {warn}: a failure must be worse than a warning"
            )
        return fail


class ModelSpec(Strict):
    """A model that the run serves, and what is searched in its config; `{}`: only loaded."""

    name: Annotated[str, SkipJsonSchema()] = Field(
        min_length=1, description="its directory in the repository: what it is listed as"
    )
    space: SpaceSpec = Field(
        default_factory=dict,
        description="ModelConfig paths and the values to try; default: the config stays as it is",
    )
    calls: tuple[str, ...] = Field(
        (), description="models that its own code calls (BLS); they are loaded before it"
    )


class Spec(Strict):
    """A spec file."""

    models: dict[str, ModelSpec] = Field(
        min_length=1, description="the models to serve, by name, and what is searched in each"
    )
    repository: SpecPath = Field(description="model repository, relative to the spec file")
    write_to: WriteTo = Field(
        CONFIG_NAME,
        description="config.pbtxt or configs/NAME.pbtxt, which a server started with "
        "--model-config-name=NAME reads: the config of each model that is tuned and written",
    )
    server: ServerSpec = Field(default_factory=ServerSpec, description="the tritonserver")
    streams: dict[str, StreamSpec] = Field(
        min_length=1, description="the streams of requests, by name, and what each sends"
    )
    workload: Workload = Field(default_factory=Workload, description="the load")
    slo: tuple[Slo, ...] = Field(
        (), description="limits to meet, e.g. p99_latency <= 60ms; each stream is judged by itself"
    )
    objective: Objective = Field(
        default_factory=Objective.goodput,
        description="maximize goodput, minimize p99_latency at 300/s, minimize gpu_memory at 300/s",
    )
    search: Search = Field(default_factory=Search, description="the search")
    budget: Budget = Field(default_factory=Budget, description="when to stop")
    confirm: Confirm = Field(default_factory=Confirm, description="how a winner is confirmed")
    check: Check = Field(default_factory=Check, description="limits of tune check")

    @model_validator(mode="before")
    @classmethod
    def _in_the_long_form(cls, data: Any) -> Any:
        return long_form(data)

    @property
    def name(self) -> str:
        """What a run of it is called: the models that get requests; of many, the first."""
        full = "+".join(dict.fromkeys(s.model for s in self.streams.values())).encode()
        # of the 255 bytes that a name may have, files of a run add up to 47
        more = hashlib.sha256(full).hexdigest()[:8] if len(full) > 200 else ""
        return full[:200].decode(errors="ignore") + more

    @property
    def slos(self) -> tuple[Slo, ...]:
        """Every bound with the stream it is about, of several; those at the top hold for each."""
        if len(self.streams) == 1:
            return (*self.slo, *(slo for stream in self.streams.values() for slo in stream.slo))
        top = [
            slo.about(name)
            for slo in self.slo
            for name in (self.streams if slo.metric.scope is Scope.STREAM else [""])
        ]
        of_streams = [
            slo.about(name) for name, stream in self.streams.items() for slo in stream.slo
        ]
        return (*top, *of_streams)

    @property
    def shares(self) -> dict[str, float]:
        """Each stream's share of the load; a stream with a rate has none."""
        shared = {name: s.share for name, s in self.streams.items() if s.rate is None}
        return {name: 1.0 if share is None else float(share) for name, share in shared.items()}

    def rates(self, level: float | None) -> dict[str, float | None]:
        """Requests per second of each stream under a load of so many; None where not known."""
        fixed = {
            name: stream.rate for name, stream in self.streams.items() if stream.rate is not None
        }
        shared = {n: None if level is None else level * s for n, s in self.shares.items()}
        return {name: fixed.get(name, shared.get(name)) for name in self.streams}

    def plain(self, mode: Literal["json", "python"] = "json") -> dict[str, Any]:
        """All of it as plain values, in the form in which it was written."""
        return self.as_written(self.model_dump(mode=mode, by_alias=True))

    def as_written(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Something made of each of its fields, see `forms.as_written`."""
        (name, stream), *others = self.streams.items()
        more = others or stream.model_fields_set - {"model", *CARRIED}
        return as_written(data, name if name == stream.model and not more else None)


def is_given(model: BaseModel, name: str) -> bool:
    """The spec sets the field, and not to its default."""
    default = type(model).model_fields[name].get_default(call_default_factory=True)
    return name in model.model_fields_set and getattr(model, name) != default
