"""Rules for the models of a spec, their streams of requests, and the space.

Whether a path names a field of ModelConfig, and takes such values, is checked by ``tuner.space``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tuner.spec.arrivals import ClosedArrivals
from tuner.spec.fields import Choice, IntRange, ParameterSpec, SpaceSpec, Subsets, known
from tuner.spec.metrics import Scope
from tuner.spec.mistakes import Finding, Location, in_brackets, listed
from tuner.spec.model import Spec
from tuner.spec.paths import (
    CACHE_ENABLE,
    CACHE_SIZE,
    DELAY,
    INSTANCES,
    MAX_BATCH_SIZE,
    PREFERRED,
    SERVER,
    is_of_server,
    unknown_field,
    variable_of,
    variable_path,
)
from tuner.spec.rules import applied, for_each_model, for_each_space, for_each_stream
from tuner.spec.runtimes import VARIABLES
from tuner.spec.shapes import why_not_all
from tuner.spec.units import count_text, parse_bytes
from tuner.spec.workload import NoRepeat, RandomInputs

#: Most fields of a space, values of one that are listed, and values of a range.
MOST_FIELDS = 64
MOST_LISTED = 5_000
MOST_IN_RANGE = 1_000_000

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_PATH = rf"{_NAME}(\[[^\]]+\])?(\.([A-Za-z0-9_-]+)(\[[^\]]+\])?)*"

_SPACE = "space: {instance_group.count: {int: [1, 4]}}"
_CACHE_FLAGS = ("--cache-config", "--response-cache-byte-size")
#: The lowest useful value of a field, and the reason.
_LOWEST = {
    INSTANCES: (1, "a model needs at least one instance"),
    MAX_BATCH_SIZE: (1, "0 means no batch dimension, which changes the model's inputs"),
    DELAY: (0, "a delay cannot be negative"),
}


def check_space(spec: Spec) -> Iterator[Finding]:
    """The space has something to search, and not too many fields or values."""
    fields = sum(len(space) for _, space in _spaces(spec))
    if not fields and len(spec.models) > 1:
        text = f"no model has a space, so nothing would be searched: give one, such as {{{_SPACE}}}"
        yield Finding(("models",), text, key=True)
    elif not fields:
        (name, model), *_ = spec.models.items()
        empty = "space" in model.model_fields_set
        start = "must not be empty" if empty else "is missing"
        yield Finding(("models", name, "space"), f"{start}: write {_SPACE}", absent=not empty)
    if fields > MOST_FIELDS:
        text = f"{fields} fields are too many to search; choose at most {MOST_FIELDS}"
        first = next(s.model for s in spec.streams.values() if s.model in spec.models)
        yield Finding(("models", first, "space"), text, key=True)


def _spaces(spec: Spec) -> Iterator[tuple[Location, SpaceSpec]]:
    """Each space of a spec, with its place."""
    for label, model in spec.models.items():
        yield ("models", label, "space"), model.space
    yield ("server", "space"), spec.server.space


@for_each_space
def check_fields(at: Location, space: SpaceSpec) -> Iterator[Finding]:
    """Paths that no config has, and values that no config may have."""
    of_server = at[0] == "server"
    for path in space:
        where: Location = (*at, path)
        name = variable_of(path)
        if name and name not in VARIABLES:
            text = f"'{name}' is not a variable that can be searched: {', '.join(VARIABLES)}"
            yield Finding(where, f"{text}{in_brackets(name, VARIABLES)}", key=True)
        elif of_server and not is_of_server(path):
            text = f"is not a server setting that can be searched, only {CACHE_SIZE} and"
            text += f" {variable_path('NAME')} are; fields of a model go under models"
            yield Finding(where, text, key=True)
        elif is_of_server(path) and not of_server:
            text = "is one value for all models: write it under server.space"
            yield Finding(where, text, key=True)
        elif text := unknown_field(path):
            yield Finding(where, text, key=True)
        elif not re.fullmatch(_PATH, path):
            yield Finding(
                where, f"is not the path of a ModelConfig field, such as {PREFERRED}", key=True
            )
    for path, parameter in known(space.items()):
        for rule in (_check_lowest, _check_microseconds, _check_count):
            yield from applied(rule, (*at, path), path, parameter)


@for_each_space
def check_preferred_sizes(at: Location, space: SpaceSpec) -> Iterator[Finding]:
    """No preferred size is above every max_batch_size in the space."""
    largest = _largest(space.get(MAX_BATCH_SIZE))
    preferred = space.get(PREFERRED)
    if largest is None or not isinstance(preferred, Subsets):
        return
    for index, size in enumerate(preferred.subsets):
        if size > largest:
            text = f"{size} is above the largest max_batch_size in the space, {largest}"
            yield Finding((*at, PREFERRED, "subsets", index), text)


def check_cache_of_remote(spec: Spec) -> Iterator[Finding]:
    """The size of the cache, a server argument, is not searched on a remote server."""
    if not spec.server.managed and CACHE_SIZE in spec.server.space:
        text = "is a server flag, and tune cannot restart a remote server to change it"
        yield Finding(("server", "space", CACHE_SIZE), text, key=True)


def check_cache_switches(spec: Spec) -> Iterator[Finding]:
    """Models may use a cache only if the server has one."""
    sized, managed = CACHE_SIZE in spec.server.space, spec.server.managed
    for switch in applied(_cache_switches, spec):
        if sized:
            text = f"{CACHE_SIZE} already switches the cache on and off"
            yield Finding(switch, text, key=True)
        elif managed and not any(a.startswith(_CACHE_FLAGS) for a in spec.server.args):
            text = f"does nothing without a cache in the server: search {CACHE_SIZE}"
            yield Finding(switch, text, key=True)


def _cache_switches(spec: Spec) -> Iterator[Location]:
    for at, space in _spaces(spec):
        yield from ((*at, path) for path in ("response_cache", CACHE_ENABLE) if path in space)


def _searches_cache(spec: Spec) -> bool:
    return CACHE_SIZE in spec.server.space or any(_cache_switches(spec))


@for_each_stream
def check_cached_inputs(spec: Spec, name: str) -> Iterator[Finding]:
    """Random inputs are more than one where a cache is searched: one would always hit."""
    inputs = spec.streams[name].inputs
    if isinstance(inputs, RandomInputs) and inputs.unique == 1 and _searches_cache(spec):
        text = "with a single input every request hits the cache, which shows nothing; raise it"
        yield Finding(("streams", name, "inputs", "unique"), text)


@for_each_stream
def check_cached_batches(spec: Spec, name: str) -> Iterator[Finding]:
    """Batches have no ``repeat`` where a cache is searched, which stores whole requests."""
    stream = spec.streams[name]
    repeats = not isinstance(stream.inputs.repeat, NoRepeat)
    if repeats and stream.batch_size > 1 and _searches_cache(spec):
        text = (
            "the cache stores full requests, but repeat is about single inputs: leave this out, "
            "or the cache"
        )
        yield Finding(("streams", name, "batch_size"), text)


def check_cache_sizes(spec: Spec) -> Iterator[Finding]:
    """Sizes of the cache are listed as text, with ``off``."""
    where: Location = ("server", "space", CACHE_SIZE)
    sizes = spec.server.space.get(CACHE_SIZE)
    if sizes is None:
        return
    if not isinstance(sizes, Choice):
        yield Finding(
            where, "each size needs a restart of the server: list a few, {choice: [off, 64MiB]}"
        )
        return
    for index, size in enumerate(sizes.choice):
        at = (*where, "choice", index)
        if size is False:
            continue
        if size is True or isinstance(size, float | tuple):
            yield Finding(at, "off or a size such as 64MiB is expected")
        elif size in ("off", "unset"):
            yield Finding(at, f"write off instead of '{size}'")
        else:
            yield from _check_cache_size(size, at)


def _check_cache_size(size: str | int, at: Location) -> Iterator[Finding]:
    try:
        count = parse_bytes(size)
    except ValueError as error:
        yield Finding(at, str(error))
        return
    if count < 1024:  # Triton: less may fail, and 0 does not mean off
        text = f"{count_text(count, 'byte')} cannot hold an answer; write off, or at least 1KiB"
        yield Finding(at, text)


def _check_lowest(where: Location, path: str, parameter: ParameterSpec) -> Iterator[Finding]:
    lowest, reason = _LOWEST.get(path, (None, ""))
    if lowest is None or isinstance(parameter, Subsets):
        return
    for key, value in _numbers(parameter):
        if value < lowest:
            yield Finding((*where, *key), f"{value} is below {lowest}: {reason}")


def _check_count(where: Location, path: str, parameter: ParameterSpec) -> Iterator[Finding]:
    """The number of values is limited, and computed before any is built (2^64 subsets)."""
    most = MOST_LISTED
    if isinstance(parameter, IntRange):
        low, high = parameter.int_
        count, key = (high - low) // parameter.step + 1, "int"
        most = MOST_LISTED if path == MAX_BATCH_SIZE else MOST_IN_RANGE
    elif isinstance(parameter, Choice):
        count, key = len(parameter.choice), "choice"
    else:
        count, key = _subsets(parameter), "subsets"
    if count > most and path != CACHE_SIZE:  # which has a separate rule
        text = f"stands for more than {most} values, too many for any search: name fewer"
        yield Finding((*where, key), text)


def _subsets(parameter: Subsets) -> int:
    """The number of subsets, or some number above `MOST_LISTED`."""
    count, sizes = 0, len(parameter.subsets)
    for members in range(1, min(parameter.at_most, sizes) + 1):
        count += math.comb(sizes, members)
        if count > MOST_LISTED:
            break
    return count


def _check_microseconds(where: Location, path: str, parameter: ParameterSpec) -> Iterator[Finding]:
    if not path.endswith("_microseconds") or not isinstance(parameter, Choice):
        return
    for index, value in enumerate(parameter.choice):
        if isinstance(value, str) and value != "unset":
            text = f"'{value}' is not a number of microseconds; 1ms is 1000"
            yield Finding((*where, "choice", index), text)


def _numbers(parameter: IntRange | Choice) -> Iterator[tuple[Location, int]]:
    if isinstance(parameter, IntRange):
        yield ("int", 0), parameter.int_[0]
        if isinstance(parameter.or_, int):
            yield ("or",), parameter.or_
        return
    for index, value in enumerate(parameter.choice):
        if isinstance(value, int) and not isinstance(value, bool):
            yield ("choice", index), value


def _largest(parameter: ParameterSpec | None) -> int | None:
    if isinstance(parameter, IntRange):
        special = parameter.or_ if isinstance(parameter.or_, int) else 0
        return max(parameter.int_[1], special)
    if isinstance(parameter, Choice):
        return max((value for _, value in _numbers(parameter)), default=None)
    return None


_STREAM = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"


@for_each_model
def check_names(spec: Spec, label: str) -> Iterator[Finding]:
    """A model's name must be a valid name of a directory in the repository."""
    where: Location = ("models", label, "name")
    if spec.models[label].name != label:
        text = "unknown key 'name'; a model's name is the key it is listed under"
        yield Finding(where, text, key=True)
        where = ("models", label)
    if "/" in label:
        yield Finding(where, f"'{label}' is a path; write only the model's name")
    if label == SERVER:
        yield Finding(where, "is not a model name", key=True)


@for_each_model
def check_calls(spec: Spec, label: str) -> Iterator[Finding]:
    """A model calls others, each by its name."""
    calls = spec.models[label].calls
    for index, name in known(enumerate(calls)):
        at = ("models", label, "calls", index)
        if "/" in name or not name:
            text = f"'{name}' is not a model name: write only the name of its directory"
            yield Finding(at, text)
        elif name == label:
            yield Finding(at, "a model that calls itself cannot be loaded before itself")
        elif name in calls[:index]:
            yield Finding(at, f"{name} is listed twice")


@for_each_stream
def check_models_of_streams(spec: Spec, name: str) -> Iterator[Finding]:
    """Each stream names a model of the spec."""
    model = spec.streams[name].model
    if model not in spec.models:
        names = listed(spec.models)
        text = f"'{model}' is not one of the models: {names}{in_brackets(model, spec.models)}"
        yield Finding(("streams", name, "model"), text)


@for_each_stream
def check_stream_names(spec: Spec, name: str) -> Iterator[Finding]:
    """Names of streams must fit in file names and tables."""
    if not re.fullmatch(_STREAM, name) and name != spec.streams[name].model:
        text = f"'{name}' is not a stream name: use letters, digits, _, - and ."
        yield Finding(("streams", name), text, key=True)


@for_each_stream
def check_bounds_of_streams(spec: Spec, name: str) -> Iterator[Finding]:
    """The SLOs of a stream must be on metrics that a single stream has."""
    for index, slo in known(enumerate(spec.streams[name].slo)):
        if slo.metric.scope is Scope.SERVER:
            text = f"{slo.metric.name} applies to the server: write it under the top-level slo"
            yield Finding(("streams", name, "slo", index), text)


def check_shares(spec: Spec) -> Iterator[Finding]:
    """Each stream has a share of the level, or a constant rate."""
    shared = {name: stream for name, stream in spec.streams.items() if stream.rate is None}
    for name, stream in spec.streams.items():
        where = ("streams", name)
        if stream.rate is not None and stream.share is not None:
            text = (
                "a stream has either a share of the load or a constant rate: leave one of them out"
            )
            yield Finding((*where, "rate"), text, key=True)
        elif name in shared and stream.share is None and len(shared) > 1:
            text = "has neither share nor rate: write share: 50%, or rate: 20/s for background"
            yield Finding(where, text, key=True)
    shares = [stream.share for stream in shared.values() if stream.share is not None]
    if 0.0 in shares:
        name = next(name for name, stream in shared.items() if stream.share == 0.0)
        text = "a stream that sends no requests has no effect: leave it out"
        yield Finding(("streams", name, "share"), text)
    elif len(shares) == len(shared) and shared and (text := why_not_all(shares)):
        yield Finding(("streams", next(iter(shared)), "share"), text)
    if not shared:
        text = (
            "all streams have a constant rate: give one a share, so that its load can be searched"
        )
        yield Finding(("streams",), text, key=True)


def check_open_loop(spec: Spec) -> Iterator[Finding]:
    """Several streams need an open loop: clients of a closed loop would not keep the shares."""
    if not isinstance(spec.workload.arrivals, ClosedArrivals):
        return
    parts = [
        ("streams", name, field)
        for name, stream in spec.streams.items()
        for field in ("share", "rate")
        if getattr(stream, field) is not None
    ]
    if len(spec.streams) > 1:
        text = "several streams need an open loop, such as {kind: poisson}"
        yield Finding(("workload", "arrivals"), text)
    elif parts:
        text = "clients of a closed loop wait for answers: leave it out, or use {kind: poisson}"
        yield Finding(parts[0], text, key=True)
