"""Explains pydantic's errors in the terms and places of a spec file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tuner.hiding import HIDDEN
from tuner.spec.fields import by_key, models_in
from tuner.spec.forms import CARRIED, SHORT_KEYS
from tuner.spec.mistakes import Finding, Location, closest, dotted, in_brackets
from tuner.spec.model import ModelSpec, Search, Spec
from tuner.spec.paths import MAX_BATCH_SIZE, SEARCHABLE, SEVERAL_REPOSITORIES
from tuner.spec.server import ServerSpec
from tuner.spec.slo import Slo, slo_lines
from tuner.spec.units import shorten
from tuner.spec.workload import Requests, Workload

#: Error type to text; the fields of ``ctx`` may be named.
_MESSAGES: Mapping[str, str] = {
    "int_type": "a whole number is expected, not {value}",
    "int_from_float": "a whole number is expected, not {value}",
    "float_type": "a number is expected, not {value}",
    "finite_number": "a finite number is expected, not {value}",
    "bool_type": "true or false is expected, not {value}",
    "tuple_type": "a list such as [{item}] is expected, not {value}",
    "dict_type": "a mapping is expected, not {value}",
    "model_type": "a mapping is expected, not {value}",
    "model_attributes_type": "a mapping such as {{kind: ...}} is expected, not {value}",
    "path_type": "a path is expected, not {value}",
    "greater_than": "must be above {gt:g}, not {value}",
    "greater_than_equal": "must be at least {ge:g}, not {value}",
    "less_than_equal": "must be at most {le:g}, not {value}",
    "too_short": "must not be empty",
    "string_too_short": "is not a model name",
    "string_pattern_mismatch": "is not a variable's name",
}

#: What may be written for mappings that are lists elsewhere, such as in Kubernetes and Docker.
_SUCH_AS: Mapping[Location, str] = {
    ("server", "environment"): "{OMP_NUM_THREADS: '4'}",
    ("server", "mounts"): "{/data: /data}",
}
_MAPPINGS = ("dict_type", "model_type", "model_attributes_type")
#: What may be written for each required key.
_LINES = {
    "models": "models: {NAME: {space: ...}}",
    "streams": "streams: {NAME: {model: ...}}",
    "repository": "repository: DIRECTORY",
    "name": "model: NAME",
    "model": "model: NAME, of the model that gets the requests",
    "file": "file: FILE",
    "share": "share: 50%",
    "dims": "dims: [64]",
    "interval": "interval: 200ms",
    "int": "int: [1, 4]",
    "choice": "choice: [8, 16]",
    "subsets": "subsets: [4, 8]",
}
_ENDS = "a search ends when another trial is expected to gain less than confirm.min_gain"
#: Keys of earlier builds, and what to do instead.
_REMOVED: dict[tuple[type[BaseModel], str], str] = {
    (Search, "patience"): f"leave it out; {_ENDS}, and budget.trials limits it",
    (Search, "stop_below"): f"leave it out; {_ENDS}",
}
#: Words of other programs, and what a spec has for them.
_OF_OTHERS = {
    **dict.fromkeys(
        ("n_trials", "num_trials", "max_trials", "num_samples", "optuna_max_trials"),
        "budget: {trials: N}",
    ),
    **dict.fromkeys(
        ("timeout", "max_time", "time_limit", "run_time", "max_runtime"), "budget: {time: 20m}"
    ),
    **dict.fromkeys(
        ("direction", "metric", "mode", "goal", "objectives"), "objective: maximize goodput"
    ),
    **dict.fromkeys(("sampler", "search_alg", "algorithm"), "search: {strategy: gp}"),
    **dict.fromkeys(
        ("search_space", "param_space", "parameters", "params", "model_config_parameters"), "space"
    ),
    **dict.fromkeys(("constraints", "latency_budget", "latency"), "slo: [p99_latency <= 60ms]"),
    **dict.fromkeys(("model_repo", "model_repository", "models_dir"), "repository: DIRECTORY"),
    **dict.fromkeys(("model_name", "profile_models"), "model: NAME"),
    **dict.fromkeys(("batch_sizes", "batch"), "workload: {batch_size: N}"),
    **dict.fromkeys(
        ("users", "vus", "clients", "connections", "concurrency-range", "concurrency_range"),
        "workload: {arrivals: {kind: closed, concurrency: [N]}}",
    ),
    **dict.fromkeys(
        ("qps", "rps", "request_rate", "spawn_rate", "request-rate-range", "request_rate_range"),
        "workload: {arrivals: {kind: poisson, rate: [N]}}",
    ),
    **dict.fromkeys(
        ("targets", "input_data", "input-data", "dataset"),
        "workload: {inputs: {kind: file, file: FILE}}",
    ),
    **dict.fromkeys(("measurement-interval", "measurement_interval"), "workload: {window: 5s}"),
    "percentile": "slo: [p95_latency <= 60ms]",
    "shape": "workload: {inputs: {kind: random, shapes: {INPUT: [128]}}}",
    "duration": "workload: {window: 10s} for one measurement, or budget: {time: 20m} for a run",
    "<<": "the keys themselves; a spec has no merge keys",
}
#: Words of Docker and others for settings of the server.
_OF_OTHER_SERVERS = {
    "volumes": "mounts: {/data: /data}",
    "command": "args: [--log-verbose=1]",
    "env": "environment: {OMP_NUM_THREADS: '4'}",
    **dict.fromkeys(
        ("url", "host", "endpoint", "address"),
        "mode: remote, http: HOST:8000, grpc: HOST:8001, metrics: HOST:8002",
    ),
}
#: Keys that every spec of one model has: what stands for one makes it no missing key.
_REQUIRED = ("model", "repository", "slo", "space")
#: Where the value found is not shown.
_SECRET = ("server", "environment")
#: Keys that users might write for a stream, with the place where the setting belongs.
_EXCHANGES = ("kind", "sequences", "streaming")
_NOT_A_STREAMS = (
    "a stream says what it asks of which model; sequences are arrivals of kind sequences, and "
    "whether one request is answered many times is up to the model"
)
#: Fields that have fields inside.
_MESSAGES_OF_FIELDS = {*SEARCHABLE} - {MAX_BATCH_SIZE}
_SPACE_FORMS = "write {int: [1, 4]}, {choice: [8, 16]} or {subsets: [4, 8]}"


def explained(owner: type[BaseModel], location: Location, detail: ErrorDetails) -> Finding | None:
    """An error in the data of a model as a finding; None where another error is clearer."""
    if location[:2] == _SECRET:
        detail["input"] = HIDDEN
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "too_short" and detail["input"]:
        return None  # pydantic does not count invalid items
    if kind == "extra_forbidden":
        return _unknown_key(location, owner)
    if kind == "union_tag_invalid":
        tag, tags = str(context["tag"]), context["expected_tags"]
        return Finding((*location, "kind"), _not_one_of(tag, tags))
    if kind == "union_tag_not_found" and location[-2:-1] != ("space",):
        names = ", ".join(_kinds(owner, location))
        return Finding(location, f"'kind' is missing: one of {names}")
    if kind == "missing":
        return Finding(location, f"is missing: write {_LINES[str(location[-1])]}", absent=True)
    if kind in _MAPPINGS:
        return _no_mapping(owner, location, detail)
    return Finding(location, _message(detail), key=kind == "string_too_short")


def _no_mapping(owner: type[BaseModel], location: Location, detail: ErrorDetails) -> Finding:
    value, such_as = detail["input"], _SUCH_AS.get(location, "")
    if location in (("models",), ("streams",)) and isinstance(value, list):
        such_as = ", ".join(f"{name}: {{}}" for name in value if isinstance(name, str))
        such_as = f"{{{such_as}}}" if such_as else ""
    if such_as:
        return Finding(location, f"a mapping such as {such_as} is expected")
    text = _message(detail)
    if isinstance(value, str) and (line := _as_mapping(owner, location, value)):
        text = f"a mapping is expected: write {{{line}}}"
    return Finding(location, text, described=_described(location))


def _as_mapping(owner: type[BaseModel], location: Location, text: str) -> str:
    """What a text says that is written where a mapping is expected; empty if that is unknown."""
    if text in _kinds(owner, location):
        return f"kind: {text}"
    if location[-1] == "inputs" and "." in text:
        return f"kind: file, file: {text}"
    if location == ("server",) and re.fullmatch(r"(https?://)?[\w.-]+:\d+/?", text):
        return "mode: remote, http: HOST:8000, grpc: HOST:8001, metrics: HOST:8002"
    keys = {("server",): "mode", ("budget",): "time", ("search",): "strategy"}
    if location not in keys:
        return ""
    (part,) = _models_at(owner, location)
    try:
        part.model_validate({keys[location]: text})
    except ValidationError:
        return ""
    return f"{keys[location]}: {text}"


def _kinds(owner: type[BaseModel], location: Location) -> list[str]:
    """The kinds of what may be at a place."""
    models = map(by_key, _models_at(owner, location))
    return [_kind(fields) for fields in models if "kind" in fields]


def _models_at(owner: type[BaseModel], location: Location) -> tuple[type[BaseModel], ...]:
    """What may be at a place of a model; nothing at one in a mapping of names."""
    info = by_key(owner).get(str(location[-1]))
    return () if info is None else models_in(info.annotation)


def _message(detail: ErrorDetails) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if detail["loc"] == ("repository",) and isinstance(value, list):
        return f"a path is expected, not a list; {SEVERAL_REPOSITORIES}"
    if kind in ("enum", "literal_error"):
        return _not_one_of(value, context["expected"])
    if kind == "union_tag_not_found":
        return _no_parameter(str(detail["loc"][-1]), value)
    if kind == "string_type":
        quoted = f": put it in quotes, '{_quoted(value)}'" if _is_scalar(value) else ""
        return f"text is expected, not {_quoted(value)}{quoted}"
    if kind == "tuple_type" and not _is_scalar(value):
        lines = slo_lines(value) if detail["loc"] == ("slo",) and isinstance(value, dict) else []
        such_as = f" such as {lines}" if lines else ""
        return f"a list{such_as} is expected, not {_quoted(value)}"
    of_mappings = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
    if kind in _MAPPINGS and of_mappings:
        return "a mapping is expected, not a list: leave out the '- ' before its keys"
    if kind in _MESSAGES:
        value_text, item = _quoted(value), _items(value)
        text = _MESSAGES[kind].format(value=value_text, item=item, **context)
        return "; ".join([text, *_wrong_slos(value)]) if detail["loc"] == ("slo",) else text
    return detail["msg"]


def _wrong_slos(text: Any) -> Iterator[str]:
    """What is wrong in SLOs that are one text instead of a list."""
    for line in re.split(r"\s*,\s*", text) if isinstance(text, str) else ():
        try:
            Slo.parse(line)
        except ValueError as error:
            yield str(error)


def _items(value: Any) -> str:
    """The items of a list that a value should be, also where one text has several items."""
    if not isinstance(value, str):
        return _quoted(value)
    if steps := re.fullmatch(r"(\d{1,6}):(\d{1,6})(?::(\d{1,6}))?", value):  # of perf_analyzer
        levels = range(int(steps[1]), int(steps[2]) + 1, max(int(steps[3] or 1), 1))
        first = map(str, levels[:_MOST_ITEMS])
        return ", ".join([*first, "..."] if levels[_MOST_ITEMS:] else first)
    words = re.split(r"\s*,\s*|\s+(?=-)", value.strip())
    numbers = (re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", word) for word in words)
    return ", ".join(n[1] if n else _quoted(w) for w, n in zip(words, numbers, strict=True))


_MOST_ITEMS = 16


def _no_parameter(path: str, value: Any) -> str:
    nested = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(nested, dict) and nested and path in _MESSAGES_OF_FIELDS:
        first = f"{path}.{next(iter(nested))}"
        return f"has fields inside: write each by its path, such as {first}; {_SPACE_FORMS}"
    if isinstance(value, list):
        listed = ", ".join(_quoted(item).strip("'") for item in value)
        return f"is a bare list (did you mean {{choice: [{listed}]}}?); {_SPACE_FORMS}"
    if isinstance(value, dict) and value:
        guess = in_brackets(next(iter(value)), ["int", "choice", "subsets"])
        return f"has none of int, choice and subsets{guess}: {_SPACE_FORMS}"
    return f"values to try are expected, not {_quoted(value)}: {_SPACE_FORMS}"


def _not_one_of(value: Any, expected: str) -> str:
    options = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    return f"{_quoted(value)} is not one of {', '.join(options)}{in_brackets(str(value), options)}"


def _described(location: Location) -> str:
    """The heading in `docs/spec.md` that describes the part at ``location``."""
    named = len(location) > 1 and location[0] in ("models", "streams")
    return dotted((location[0], "NAME", *location[2:]) if named else location) or "a spec"


def _unknown_key(location: Location, owner: type[BaseModel]) -> Finding:
    key = str(location[-1])
    if (text := _REMOVED.get((owner, key))) is not None:
        return Finding(location, f"'{key}' was removed: {text}", key=True)
    if location[0] == "streams" and len(location) == 3 and key in _EXCHANGES:
        return Finding(location, f"unknown key '{key}': {_NOT_A_STREAMS}", key=True)
    short = {Spec: SHORT_KEYS, Workload: CARRIED}.get(owner, ())
    if key in short:  # beside what says the same in the long form
        text = f"belongs to a stream: write it under streams.NAME.{key}"
        if key == "model":
            text = (
                "gets no requests: each stream names another model; leave it out, or list it under "
                "models"
            )
        elif owner is Spec:
            text = f"belongs to a model: write it under models.NAME.{key}, and only there"
        return Finding(location, text, key=True)
    words = {Spec: _OF_OTHERS, Workload: _OF_OTHERS, ServerSpec: _OF_OTHER_SERVERS}.get(owner, {})
    if key in words:
        text = f"unknown key {shorten(key)}: write {words[key]}"
        meant = words[key].partition(":")[0]
        return Finding(location, text, key=True, meant=meant if meant in _REQUIRED else "")
    if kinds := _kinds_with(owner, key):
        text = f"'{key}' belongs to kind {' or '.join(kinds)}, not to this one"
        return Finding(location, text, key=True)
    homes = [home for home in _places_of_keys() if home[-1] == key]
    if homes:
        home = min(homes, key=lambda h: h[:1] != location[:1])
        text = f"'{key}' belongs under {dotted(home[:-1]) or 'the top'}, not here"
        return Finding(location, text, key=True)
    known = sorted({*by_key(owner), *short} - ({"name"} if owner is ModelSpec else set()))
    meant = closest(key, known)
    if meant:
        text = f"unknown key {shorten(key)} (did you mean {meant}?)"
        return Finding(location, text, key=True, meant=meant)
    text = f"unknown key {shorten(key)}; known here: {', '.join(known)}"
    return Finding(location, text, key=True, described=_described(location[:-1]))


def _kinds_with(owner: type[BaseModel], key: str) -> list[str]:
    """The other kinds of a model that have a key."""

    def others(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
        for info in by_key(model).values():
            inner = models_in(info.annotation)
            yield from inner if owner in inner else chain.from_iterable(map(others, inner))

    fields = map(by_key, dict.fromkeys(others(Spec)))
    return [_kind(one) for one in fields if "kind" in one and key in one]


def _kind(fields: Mapping[str, FieldInfo]) -> str:
    return str(get_args(fields["kind"].annotation)[0])


@cache
def _places_of_keys() -> tuple[Location, ...]:
    """Every path of keys in a spec, from the top, the shortest first."""

    def walk(model: type[BaseModel], above: Location) -> Iterator[Location]:
        for name, info in by_key(model).items():
            yield (*above, name)
            if name != "space":
                free = ("NAME",) if get_origin(info.annotation) is dict else ()
                for inner in models_in(info.annotation):
                    yield from walk(inner, (*above, name, *free))

    short = [(name,) for name in SHORT_KEYS]
    carried = walk(Requests, ("workload",))
    return tuple(sorted([*short, *carried, *walk(Spec, ())], key=len))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _quoted(value: Any) -> str:
    """A value as it is written in a spec."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a mapping" if isinstance(value, dict) else str(value)
