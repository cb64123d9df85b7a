"""Turns Model Analyzer's YAML into the parts of a spec, and lists what it does not take over."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.model_analyzer.yaml_file import Profile
from tuner.modelconfig.path import canonical, get, with_fields
from tuner.space.draft import Given, open_shapes
from tuner.spec.metrics import (
    AVG_LATENCY,
    GPU_MEMORY,
    P90_LATENCY,
    P95_LATENCY,
    P99_LATENCY,
    THROUGHPUT,
    Metric,
)
from tuner.spec.mistakes import Location
from tuner.spec.model import ModelAnalyzerMode
from tuner.spec.paths import DYNAMIC_BATCHING, INSTANCES, MAX_BATCH_SIZE, PREFERRED, is_inside

GOODPUT = "maximize goodput"
PARAMETERS = "model_config_parameters"
FLAGS = "perf_analyzer_flags"

#: Model Analyzer's own bounds.
MAX_CONCURRENCY, INSTANCE_COUNTS, MODEL_BATCH_SIZES = 1024, (1, 5), (1, 128)

#: Metrics of Model Analyzer that `tune` measures too; ``perf_latency`` is an old name.
_METRICS = {
    "perf_throughput": THROUGHPUT,
    "perf_latency_avg": AVG_LATENCY,
    "perf_latency_p90": P90_LATENCY,
    "perf_latency_p95": P95_LATENCY,
    "perf_latency_p99": P99_LATENCY,
    "perf_latency": P99_LATENCY,
    "gpu_used_memory": GPU_MEMORY,
}
_UNMEASURED = "tune does not measure it"
#: Fields that are not searched, with what is inside them.
_FIXED = ("name", "platform", "backend", "version_policy", "response_cache")
_PLACEMENT = ("instance_group.kind", "instance_group.gpus")


def repository_of(profile: Profile) -> Path | None:
    """The model repository, relative to where we are, as Model Analyzer does, or to the file."""
    given = profile.take("model_repository", str)
    if given is None:
        return None
    beside = profile.path.parent / given
    return beside if beside.is_dir() and not Path(given).is_dir() else Path(given)


def carried(profile: Profile, config: Any, directory: Path, slo: str) -> Given:
    """Everything a spec in ``directory`` has a place for, and a list of the rest.

    ``config`` is the model's ModelConfig message; ``slo`` is used where no latency is bounded.

    Raises:
        SpecError: An option has a value that Model Analyzer would refuse too, or the file is
            about a language model.
    """
    if (profile.take("model_type", str) or "").lower() == "llm":
        raise profile.mistake(("model_type",), "language models are not tuned here")
    profile.take("model_repository", str)
    mode = profile.take("run_config_search_mode", str) or ModelAnalyzerMode.BRUTE.value
    if mode not in [known.value for known in ModelAnalyzerMode]:
        raise profile.mistake(("run_config_search_mode",), "brute, quick or optuna is expected")
    arrivals = _arrivals(profile)
    goal = _objective(profile, arrivals)
    protocol = (profile.take("client_protocol", str) or "grpc").lower()
    if protocol not in ("grpc", "http"):
        raise profile.mistake(("client_protocol",), "grpc or http is expected")
    workload: dict[str, Any] = {"protocol": protocol, "arrivals": arrivals}
    if sizes := profile.take_numbers("batch_sizes"):
        workload |= {"batch_size": sizes[0]} if sizes[0] > 1 else {}
        if len(sizes) > 1:
            reason = f"{sizes[0]} is taken: all requests carry the same number of inputs"
            profile.leave(("batch_sizes",), reason)
    workload["inputs"] = _inputs(profile, config, directory)
    return Given(
        command=f"tune init {profile.model} --from-model-analyzer {profile.path}",
        slos=tuple(_slos(profile, goal, slo)),
        objective=goal,
        workload=workload,
        space=_space(profile, config, mode),
        trials=profile.take("optuna_max_trials", int),
        search=mode,
        left=profile.left,
    )


def _arrivals(profile: Profile) -> dict[str, Any]:
    """An even pace becomes Poisson arrivals of the same mean; without any load it is searched."""
    if rates := profile.take_numbers("request_rate"):
        return {"kind": "poisson", "rate": rates}
    if clients := profile.take_numbers("concurrency"):
        return {"kind": "closed", "concurrency": clients}
    most = profile.take("run_config_search_max_concurrency", int)
    return {"kind": "closed", "max_concurrency": most or MAX_CONCURRENCY}


def _objective(profile: Profile, arrivals: dict[str, Any]) -> str:
    """Goodput, or a metric minimised at the one load that the file names.

    That load moves from ``arrivals`` to the objective: a latency means something only at a load.
    """
    weights = profile.take("objectives", object) or {}
    if isinstance(weights, str):
        weights = weights.split(",")
    if isinstance(weights, list):
        weights = dict.fromkeys((str(name).strip() for name in weights), 1)
    if not isinstance(weights, dict) or not all(isinstance(w, int) for w in weights.values()):
        message = "a list of metrics, or a mapping of metrics to weights, is expected"
        raise profile.mistake(("objectives",), message)
    chosen = max(weights, key=lambda name: weights[name], default="perf_throughput")
    for name in weights.keys() - {chosen}:
        profile.leave(("objectives", name), f"a spec has one objective; {chosen} weighs the most")
    metric = _METRICS.get(chosen)
    kind = "rate" if "rate" in arrivals else "concurrency"
    levels = arrivals.get(kind, [])
    if metric is None:
        profile.leave(("objectives", chosen), _UNMEASURED)
    elif metric is not THROUGHPUT and len(levels) != 1:
        at = "RATE/s" if kind == "rate" else "CONCURRENCY"
        reason = f"is lowest where there is no load: write minimize {metric.name} at {at}"
        profile.leave(("objectives", chosen), reason)
    elif metric is not THROUGHPUT:
        del arrivals[kind]
        return f"minimize {metric.name} at {levels[0]}{'/s' if kind == 'rate' else ''}"
    return GOODPUT


def _slos(profile: Profile, goal: str, stand_in: str) -> list[str]:
    """The file's, a latency under goodput in any case, and no failed requests.

    Model Analyzer's units are milliseconds, inferences per second and MB.
    """
    found: dict[Metric, str] = {}
    for name, limits in (profile.take("constraints", dict) or {}).items():
        where, metric = ("constraints", name), _METRICS.get(name)
        bound = next(iter(limits.values()), 0) if isinstance(limits, dict) else 0
        if not isinstance(bound, int) or bound < 1 or len(limits) > 1:
            raise profile.mistake(where, "one bound is expected: {max: 100} or {min: 100}")
        if metric is None:
            profile.leave(where, _UNMEASURED)
        elif metric is not THROUGHPUT:
            found[metric] = f"{metric.name} <= {bound}{'ms' if metric.is_latency else 'MB'}"
        elif goal == GOODPUT:
            profile.leave(where, "goodput is the throughput and is raised as far as it goes")
        else:
            found[metric] = f"{metric.name} >= {bound}/s"
    if budget := profile.take("latency_budget", int):
        found[P99_LATENCY] = f"{P99_LATENCY.name} <= {budget}ms"
    slos = list(found.values())
    if goal == GOODPUT and not any(metric.is_latency for metric in found):
        slos.insert(0, stand_in)
        text = f"no latency is bounded; {stand_in} is an example: change it"
        profile.leave(("constraints",), text)
    return [*slos, "error_rate <= 0%"]


def _inputs(profile: Profile, config: Any, directory: Path) -> dict[str, Any]:
    """One file of requests, or random ones; what those cannot know of a shape is guessed."""
    flags = profile.take(FLAGS, dict) or {}
    for name in flags.keys() - {"input-data", "shape"}:
        profile.leave((FLAGS, name))
    data = flags.get("input-data", "random")
    data = data[0] if isinstance(data, list) and len(data) == 1 else data
    if isinstance(data, str) and data not in ("random", "zero") and not Path(data).is_dir():
        file = data if Path(data).is_absolute() else os.path.relpath(data, directory)
        return {"kind": "file", "file": file}
    if data != "random":
        profile.leave((FLAGS, "input-data"), "random inputs instead; tune takes one JSON file")
    shapes, given = open_shapes(config), flags.get("shape") or []
    for text in given if isinstance(given, list) else [given]:
        name, _, dims = str(text).rpartition(":")
        if not name or not all(part.strip().isdigit() for part in dims.split(",")):
            raise profile.mistake((FLAGS, "shape"), "NAME:DIM,DIM is expected")
        if name in shapes:
            shapes[name] = [int(part) for part in dims.split(",")]
    return {"kind": "random", "unique": 2000, **({"shapes": shapes} if shapes else {})}


def _space(profile: Profile, config: Any, mode: str) -> dict[str, dict[str, Any]]:
    """Path to the values to try, in the spec's words; empty when nothing is to be searched.

    What Model Analyzer's mode searches by itself is added with its bounds.
    """
    given = profile.take(PARAMETERS, dict) or {}
    found: dict[str, dict[str, Any]] = {}
    for path, where, values in _listed(given, (PARAMETERS,), ""):
        if _is_so(config, path, values):
            continue
        if reason := _refusal(config, path, values):
            profile.leave(where, reason)
        elif not any(isinstance(value, tuple) for value in values):
            found[path] = {"choice": list(dict.fromkeys(values))}
        else:  # lists of sizes
            sizes = [value if isinstance(value, tuple) else (value,) for value in values]
            single, most = sorted({s for part in sizes for s in part}), max(map(len, sizes))
            found[path] = {"choice": single} if most == 1 else {"subsets": single, "at_most": most}
            if most > 1:
                profile.leave(where, "every subset of the sizes is searched")
    if given and mode == "brute":
        return found
    return found | _by_itself(profile, config, found)


def _listed(
    given: Mapping[str, Any], where: Location, prefix: str
) -> Iterator[tuple[str, Location, list[Any]]]:
    """Path, place and alternatives of each field; none for what has no path of its own."""
    for name, written in given.items():
        path, at, value = f"{prefix}{name}", (*where, name), written
        while isinstance(value, list) and len(value) == 1:
            value, at = value[0], (*at, 0)  # a list of one message is that message
        if not isinstance(value, dict):
            value, at = written, (*where, name)
        elif list(value) == ["string_value"]:
            value = value["string_value"]  # one of `parameters`
        if isinstance(value, dict) and value:
            yield from _listed(value, at, f"{path}.")
            continue
        alternatives = value if isinstance(value, list) else [True if value == {} else value]
        if path == PREFERRED and not any(isinstance(v, list) for v in alternatives):
            alternatives = [alternatives]  # a repeated field's one value
        values = [tuple(v) if isinstance(v, list) else v for v in alternatives]
        members = [v for part in values for v in (part if isinstance(part, tuple) else [part])]
        yield path, at, [] if any(isinstance(v, (dict, list)) for v in members) else values


def _is_so(config: Any, path: str, values: list[Any]) -> bool:
    """The config has the only value already, or the whole list."""
    try:
        return get(config, path) in (tuple(values), *(values if len(values) == 1 else ()))
    except SpecError:
        return False


def _refusal(config: Any, path: str, values: list[Any]) -> str:
    """Why a spec cannot search these values of a field; empty if it can."""
    if path.split(".", maxsplit=1)[0] in _FIXED or path in _PLACEMENT:
        return "stays as in config.pbtxt"
    if not values or (path != PREFERRED and any(isinstance(v, tuple) for v in values)):
        return "a spec searches single fields, by path, with one value at a time"
    if path == MAX_BATCH_SIZE and 0 in values:
        return "0 means no batch dimension, which changes the model's inputs"
    batched = {DYNAMIC_BATCHING: True} if is_inside(path, DYNAMIC_BATCHING) else {}
    try:
        for value in values:
            with_fields(config, {**batched, canonical(path): value})
    except SpecError as error:
        return error.message
    return ""


def _by_itself(
    profile: Profile, config: Any, listed: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What every mode except a manual brute search varies by default, and switches on."""
    if config.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        return {}
    found: dict[str, dict[str, Any]] = {}
    if INSTANCES not in listed and not _refusal(config, INSTANCES, [1]):
        found[INSTANCES] = {"int": list(_bounds(profile, "instance_count", INSTANCE_COUNTS))}
    if MAX_BATCH_SIZE not in listed and config.max_batch_size > 0:
        size, most = _bounds(profile, "model_batch_size", MODEL_BATCH_SIZES)
        sizes = [size << double for double in range((most // size).bit_length())]
        found[MAX_BATCH_SIZE] = {"choice": sizes}
    sizes = {**found, **listed}.get(MAX_BATCH_SIZE, {}).get("choice", [])
    off = config.WhichOneof("scheduling_choice") is None
    if (
        off
        and max(sizes, default=1) > 1
        and not any(is_inside(p, DYNAMIC_BATCHING) for p in listed)
    ):
        found[DYNAMIC_BATCHING] = {"choice": [True]}
    return found


def _bounds(profile: Profile, what: str, bounds: tuple[int, int]) -> tuple[int, int]:
    least, most = (
        profile.take(f"run_config_search_{end}_{what}", int) or bound
        for end, bound in zip(("min", "max"), bounds, strict=True)
    )
    if not 0 < least <= most:
        raise profile.mistake((f"run_config_search_max_{what}",), f"is below {max(least, 1)}")
    return least, most
