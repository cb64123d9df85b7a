"""Turns Model Analyzer's YAML into the parts of a spec, where both say the same; lists the rest."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.errors import SpecError
from tuner.load.traffic.request_file import data_of
from tuner.model_analyzer.bounds import bounded, bounded_load, leave_load_bounds
from tuner.model_analyzer.yaml_file import Profile
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.path import canonical, get, with_fields
from tuner.modelconfig.schema import takes_sequences
from tuner.regular import is_there
from tuner.space.draft import GOODPUT, Given, open_shapes
from tuner.space.draft_instances import Machine, any_on_gpu
from tuner.space.draft_slos import example_slo, joined, on_a_latency
from tuner.space.draft_space import DraftedModel, answer_many_times
from tuner.spec.metrics import METRICS, P99_LATENCY, THROUGHPUT, Metric, Until
from tuner.spec.mistakes import Location, in_brackets, listed
from tuner.spec.paths import (
    DYNAMIC_BATCHING,
    MAX_BATCH_SIZE,
    PREFERRED,
    VERSION_POLICY,
    is_inside,
    is_searchable,
)

PARAMETERS = "model_config_parameters"
FLAGS = "perf_analyzer_flags"
_COMPOSING = "bls_composing_models"
_STEPS = "ensemble_composing_models"
_ON_CPU = "cpu_only_composing_models"

#: Metrics of Model Analyzer that `tune` measures too; ``perf_latency`` is an old name.
_METRICS = {
    "perf_throughput": THROUGHPUT,
    "perf_latency": P99_LATENCY,
    "gpu_used_memory": METRICS["gpu_memory"],
    **{f"perf_latency_{kind}": METRICS[f"{kind}_latency"] for kind in ("avg", "p90", "p95", "p99")},
}
#: Fields that a draft does not search, with what is inside them.
_FIXED = (VERSION_POLICY,)
_PLACEMENT = ("instance_group.kind", "instance_group.gpus")
_STAYS = "stays as in config.pbtxt"


def repository_of(profile: Profile) -> Path | None:
    """The model repository, relative to where we are, as Model Analyzer does, or to the file."""
    given = profile.take("model_repository", str)
    if given is None:
        return None
    beside = profile.path.parent / given
    return beside if is_there(beside) and not is_there(Path(given)) else Path(given)


def called(profile: Profile, names: Collection[str]) -> tuple[str, ...]:
    """The models that the model's code calls, as far as the repository has them by these names."""
    composing = profile.take_models(_COMPOSING)
    for name, (_, where) in composing.items():
        if name not in names:
            profile.leave(where, f"no model has this name{in_brackets(name, names)}")
    return tuple(name for name in composing if name in names)


def carried(
    profile: Profile,
    models: Mapping[str, DraftedModel],
    directory: Path,
    slos: tuple[str, ...],
    *,
    sequences: bool,
    together: bool = False,
) -> Given:
    """Everything a spec in ``directory`` has a place for, and a list of the rest.

    Args:
        models: The model by its name, then those that are served with it.
        slos: The user's own, which replace those of the file on their metrics.
        sequences: The load is one of sequences.
        together: The model's requests are one of several streams.

    Raises:
        SpecError: An option has a value that Model Analyzer would refuse too.
    """
    config, many = models[profile.model].config, answer_many_times(models)
    profile.take("model_repository", str)
    arrivals = _arrivals(profile)
    if takes_sequences(config):
        reason = "requests of sequences come at an interval, and how many run at once is searched"
        arrivals = _leave_load(profile, arrivals, reason)
    if together:
        arrivals = _of_stream(profile, arrivals)
    elif not takes_sequences(config):
        arrivals = bounded_load(profile, arrivals)
    _leave_cpu_only(profile, models)
    goal = _objective(profile, {} if together else arrivals, many=many)
    batch_size = _batch_size(profile, config, sequences=sequences)
    file, shapes = _inputs(profile, config)
    stand_in = next(iter(on_a_latency(slos)), example_slo(many=many))
    limits, spaces = _slos(profile, goal, stand_in, many=many), _spaces(profile, models)
    bounds = bounded(profile, models, spaces, PARAMETERS)
    profile.refuse_without_use()
    return Given(
        command=shlex.join(
            ["tune", "init", profile.model, "--from-model-analyzer", str(profile.path)]
        ),
        slos=joined(slos, tuple(limits)),
        objective=goal,
        arrivals=arrivals,
        batch_size=batch_size,
        file=file and os.path.relpath(file, directory),
        sequences=_holds_sequences(file),
        shapes=shapes,
        spaces=spaces,
        bounds=bounds,
        left=profile.left,
    )


def _leave_cpu_only(profile: Profile, models: Mapping[str, DraftedModel]) -> None:
    """Models that are for CPUs only: a fact of the config, which a spec does not change."""
    some_gpu = Machine(cores=1, gpus=1)  # on which instances may be put without a kind
    places = {name: where for name, (_, where) in profile.take_models(_ON_CPU).items()}
    if profile.without("cpu_only").values.get("cpu_only") is True:
        places[profile.model] = ("cpu_only",)
    for name, where in places.items():
        if name not in models:
            profile.leave(where, f"no step has this name{in_brackets(name, models)}")
        elif any_on_gpu(models[name].config, some_gpu):
            reason = "a spec keeps the placement of config.pbtxt: write kind: KIND_CPU there"
            profile.leave(where, reason)


def _batch_size(profile: Profile, config: Any, *, sequences: bool) -> int:
    """The first of the sizes that the model takes."""
    where = ("batch_sizes",)
    sizes = profile.take_numbers("batch_sizes")
    if sequences and sizes[1:] + sizes[:1] > [1]:
        profile.leave(where, "a request of a sequence holds one inference")
        sizes = []
    most = config.max_batch_size or math.inf
    if large := [size for size in sizes if size > most]:
        profile.leave(where, f"{listed(large)} above the model's max_batch_size, {most}")
        sizes = [size for size in sizes if size <= most]
    if len(sizes) > 1:
        reason = f"{sizes[0]} is taken: all requests carry the same number of inputs"
        profile.leave(where, reason)
    return sizes[0] if sizes else 1


def _arrivals(profile: Profile) -> dict[str, Any]:
    """An even pace becomes Poisson arrivals of the same mean."""
    if rates := profile.take_numbers("request_rate"):
        return {"kind": "poisson", "rate": rates}
    if clients := profile.take_numbers("concurrency"):
        return {"kind": "closed", "concurrency": clients}
    return {}


def _of_stream(profile: Profile, arrivals: dict[str, Any]) -> dict[str, Any]:
    """The rate of one stream; only one can be taken, as that of all together is searched."""
    if len(arrivals.get("rate", ())) == 1:
        return arrivals
    reason = "requests of several models come on a clock, and the rate of them all is searched"
    return _leave_load(profile, arrivals, reason)


def _leave_load(profile: Profile, arrivals: dict[str, Any], reason: str) -> dict[str, Any]:
    """Takes nothing of the load; returns no arrivals."""
    if arrivals:
        profile.leave(("request_rate" if "rate" in arrivals else "concurrency",), reason)
    leave_load_bounds(profile, reason)
    return {}


def _metric(name: str, *, many: bool) -> Metric | None:
    """Ours; Model Analyzer's latency of a request ends with the last response."""
    metric = _METRICS.get(name)
    return metric.lasting(Until.LAST) if metric and metric.is_latency and many else metric


def _objective(profile: Profile, arrivals: dict[str, Any], *, many: bool) -> str:
    """Goodput, or a metric minimised at the one load that the file names.

    That load moves from ``arrivals`` to the objective: a latency means something only at a load.
    """
    given = profile.take("objectives", object) or []
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list | dict):
        raise profile.mistake(("objectives",), "a metric is expected, or a list or mapping of some")
    metric = _metric(str(next(iter(names))).strip(), many=many) if len(names) == 1 else None
    kind = "rate" if "rate" in arrivals else "concurrency"
    if metric not in (None, THROUGHPUT) and len(arrivals.get(kind, [])) == 1:
        level = arrivals.pop(kind)[0]
        return f"minimize {metric.name} at {level}{'/s' if kind == 'rate' else ''}"
    if names and metric is not THROUGHPUT:
        reason = "goodput instead of several, or of a metric that tune cannot minimize at one load"
        profile.leave(("objectives",), reason)
    return GOODPUT


def _slos(profile: Profile, goal: str, stand_in: str, *, many: bool) -> list[str]:
    """The file's, a latency under goodput in any case, and no failed requests.

    Model Analyzer's units are milliseconds, inferences per second and MB.
    """
    by_metric: dict[Metric, str] = {}
    for name, limits in (profile.take("constraints", dict) or {}).items():
        where, metric = ("constraints", name), _metric(name, many=many)
        bound = next(iter(limits.values()), 0) if isinstance(limits, dict) else 0
        if not isinstance(bound, int) or bound < 1 or len(limits) > 1:
            raise profile.mistake(where, "one bound is expected: {max: 100} or {min: 100}")
        if metric is None:
            profile.leave(where, "tune does not measure it")
        elif metric is not THROUGHPUT:
            by_metric[metric] = f"{metric.name} <= {bound}{'ms' if metric.is_latency else 'MB'}"
        elif goal == GOODPUT:
            profile.leave(where, "goodput is the throughput and is raised as far as it goes")
        else:
            by_metric[metric] = f"{metric.name} >= {bound}/s"
    if budget := profile.take("latency_budget", int):
        metric = P99_LATENCY.lasting(Until.LAST) if many else P99_LATENCY
        by_metric[metric] = f"{metric.name} <= {budget}ms"
    slos = list(by_metric.values())
    if goal == GOODPUT and not any(metric.is_latency for metric in by_metric):
        slos.insert(0, stand_in)
        text = f"no latency is bounded; {stand_in} is an example: change it"
        profile.leave(("constraints",), text)
    return [*slos, "error_rate <= 0%"]


def _inputs(profile: Profile, config: Any) -> tuple[str, dict[str, list[int]]]:
    """A file of requests, if it is one, and the shapes of random ones."""
    flags = profile.take(FLAGS, dict) or {}
    for name in flags.keys() - {"input-data", "shape"}:
        profile.leave((FLAGS, name))
    data, file = flags.get("input-data", "random"), ""
    data = data[0] if isinstance(data, list) and len(data) == 1 else data
    named = isinstance(data, str) and data not in ("random", "zero")
    if named and not (is_there(Path(data)) and Path(data).is_dir()):
        beside = profile.path.parent / Path(data).name  # a repository moves with its models
        file = str(beside) if is_there(beside) and not is_there(Path(data)) else data
        if not is_there(Path(file)):
            profile.leave((FLAGS, "input-data"), f"{file}, which the draft names, is not there")
    elif data != "random":
        profile.leave((FLAGS, "input-data"), "random inputs instead; tune takes one JSON file")
    wanted, shapes, given = open_shapes(config), {}, flags.get("shape") or []
    listed_texts = map(str, given if isinstance(given, list) else [given])
    for text in " ".join(listed_texts).split():
        name, _, dims = text.rpartition(":")
        if not name or not all(part.strip().isdigit() for part in dims.split(",")):
            raise profile.mistake((FLAGS, "shape"), "NAME:DIM,DIM is expected")
        if name not in wanted:
            reason = f"{name} is no input with an open dimension{in_brackets(name, wanted)}"
            profile.leave((FLAGS, "shape"), reason)
        elif file:
            profile.leave((FLAGS, "shape"), f"requests of a file have their own shapes of {name}")
        else:
            sizes = [int(part) for part in dims.split(",")]
            batch = len(sizes) == len(wanted[name]) + 1 and sizes[0] == 1
            shapes[name] = sizes[1:] if batch else sizes
    return file, shapes


def _holds_sequences(file: str) -> bool:
    """Whether a file has a list for each sequence; not of one that cannot be read."""
    try:
        data = data_of(Path(file)) if file else None
    except SpecError:
        return False
    return isinstance(data, list) and any(isinstance(entry, list) for entry in data)


def _spaces(
    profile: Profile, models: Mapping[str, DraftedModel]
) -> dict[str, dict[str, dict[str, Any]]]:
    """What is to be searched of each model, where the file says that: path to values."""
    parameters = profile.take(PARAMETERS, dict) or {}
    given = {
        profile.model: _space(profile, models[profile.model].config, parameters, (PARAMETERS,))
    }
    steps = profile.take_models(_STEPS)
    for name, (_, where) in steps.items():
        if name not in models:
            profile.leave(where, f"no step has this name{in_brackets(name, models)}")
    for name, (options, where) in {**profile.take_models(_COMPOSING), **steps}.items():
        if name not in models:
            continue
        for option, value in options.items():
            if option != PARAMETERS:
                profile.leave((*where, option))
            elif isinstance(value, dict):
                given[name] = _space(profile, models[name].config, value, (*where, option))
            else:
                raise profile.mistake((*where, option), "a mapping of names to values is expected")
    return {name: space for name, space in given.items() if space}


def _space(
    profile: Profile, config: Any, parameters: Mapping[str, Any], place: Location
) -> dict[str, dict[str, Any]]:
    """Path to the values to try, in the spec's words; empty when nothing is to be searched."""
    fields: dict[str, dict[str, Any]] = {}
    for path, where, values in _listed(parameters, place, ""):
        if is_ensemble(config):
            profile.leave(where, "an ensemble's are those of its steps, which are searched")
        elif _is_so(config, path, values):
            continue
        elif reason := _refusal(config, path, values):
            profile.leave(where, reason)
        else:
            different = dict.fromkeys(values)
            fields[path] = {"choice": [[*v] if isinstance(v, tuple) else v for v in different]}
    return fields


def _listed(
    given: Mapping[str, Any], where: Location, prefix: str
) -> Iterator[tuple[str, Location, list[Any]]]:
    """Path, place and alternatives of each field; none for what has no path of its own."""
    for name, listed_as in given.items():
        written = _by_key(listed_as)
        path, at, value = f"{prefix}{name}", (*where, name), _merged(written)
        while isinstance(value, list) and len(value) == 1:
            value, at = value[0], (*at, 0)  # a list of one message is that message
        if not isinstance(value, dict):
            value, at = written, (*where, name)
        elif list(value) == ["string_value"]:
            value = value["string_value"]  # one of `parameters`
        if isinstance(value, dict) and value:
            yield from _listed(value, at, f"{path}.")
            continue
        values = value if isinstance(value, list) else [True if value == {} else value]
        if path == PREFERRED and len(values) > 1 and not isinstance(values[0], list):
            values = [values]  # one list of a repeated field
        values = [v[0] if isinstance(v, list) and len(v) == 1 else v for v in values]
        if path == PREFERRED:  # a list of it is one value
            values = [tuple(v) if isinstance(v, list) else v for v in values]
        yield path, at, [] if any(isinstance(v, dict | list) for v in values) else values


def _by_key(value: Any) -> Any:
    """Entries of a map as config.pbtxt has them, ``{key: K, value: V}``, as ``{K: V}``."""
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, dict) and entry.keys() == {"key", "value"} for entry in entries):
        return value
    return {str(entry["key"]): entry["value"] for entry in entries} or value


def _merged(value: Any) -> Any:
    """Messages to choose from that differ in one field, as one message with a list for that field.

    ``[[{kind: K, count: 1}], [{kind: K, count: 2}]]`` is ``{kind: K, count: [1, 2]}``.
    """
    if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
        return value
    messages = [one[0] for one in value if len(one) == 1 and isinstance(one[0], dict)]
    if len(messages) < len(value) or len({frozenset(message) for message in messages}) != 1:
        return value
    columns = {name: [message[name] for message in messages] for name in messages[0]}
    different = [name for name, column in columns.items() if column.count(column[0]) < len(column)]
    if len(different) > 1:
        return value
    return {name: col if name in different else col[0] for name, col in columns.items()}


def _is_so(config: Any, path: str, values: list[Any]) -> bool:
    """The config has the only value already."""
    try:
        return len(values) == 1 and get(config, path) in (values[0], (values[0],))
    except SpecError:
        return False


def _refusal(config: Any, path: str, values: list[Any]) -> str:
    """Why a spec cannot search these values of a field; empty if it can."""
    if any(path == fixed or is_inside(path, fixed) for fixed in _FIXED + _PLACEMENT):
        return _STAYS
    if is_inside(path, "response_cache"):
        return "search response_cache.size, and say in workload.inputs how often inputs repeat"
    try:
        canonical(path)
    except SpecError as error:
        return error.message
    if not is_searchable(path):
        return _STAYS
    if not values:
        return "a spec searches single fields, by path, with one value at a time"
    if None in values:
        return "a value is missing"
    if path == MAX_BATCH_SIZE and 0 in values:
        return "0 means no batch dimension, which changes the model's inputs"
    batched = {DYNAMIC_BATCHING: True} if is_inside(path, DYNAMIC_BATCHING) else {}
    try:
        for value in values:
            sizes = (value,) if path == PREFERRED and isinstance(value, int) else value
            with_fields(config, {**batched, canonical(path): sizes})
    except SpecError as error:
        return error.message
    return ""
