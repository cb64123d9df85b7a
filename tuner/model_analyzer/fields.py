"""What Model Analyzer would search of a model's config, as the `space` of a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import SpecError
from tuner.model_analyzer.yaml_file import Profile
from tuner.modelconfig.path import canonical, get, with_fields
from tuner.space.candidate import FieldValue
from tuner.spec.mistakes import Location
from tuner.spec.paths import (
    CACHE_ENABLE,
    DYNAMIC_BATCHING,
    INSTANCES,
    MAX_BATCH_SIZE,
    PREFERRED,
    is_inside,
)

PARAMETERS = "model_config_parameters"

#: Model Analyzer's own bounds.
INSTANCE_COUNTS = (1, 5)
MODEL_BATCH_SIZES = (1, 128)

_FIXED = "stays as in config.pbtxt"
_CACHE = "search response_cache.size instead, and say how often inputs repeat"
#: Not searched, they and what is inside them.
_UNSEARCHED: Mapping[str, str] = {
    "name": _FIXED,
    "platform": _FIXED,
    "backend": _FIXED,
    "version_policy": _FIXED,
    "instance_group.kind": _FIXED,
    "instance_group.gpus": _FIXED,
    "response_cache": _CACHE,
    CACHE_ENABLE: _CACHE,
}


def space(profile: Profile, config: Any) -> dict[str, dict[str, Any]]:
    """Path to the values to try, in the spec's words; empty when nothing is to be searched.

    What Model Analyzer's mode searches by itself is added with its bounds. ``config`` is the
    model's ModelConfig message.
    """
    given = profile.take_mapping(PARAMETERS)
    found: dict[str, dict[str, Any]] = {}
    for path, where, values in _listed(given, (PARAMETERS,), ""):
        parameter = _parameter(profile, config, path, where, values)
        if parameter is not None:
            found[path] = parameter
    brute = profile.take_text("run_config_search_mode") in (None, "brute")
    if (given and brute) or profile.values.get("run_config_search_disable"):
        _leave_bounds(profile)
    else:
        found = {**found, **_by_itself(profile, config, found)}
    return _without_useless(profile, config, found)


def _listed(
    given: Mapping[str, Any], where: Location, prefix: str
) -> Iterator[tuple[str, Location, list[Any] | None]]:
    """Path, place and alternatives of each field; None for what has no path of its own."""
    for name, written in given.items():
        path, at, value = f"{prefix}{name}", (*where, name), _unwrapped(written)
        if isinstance(value, dict) and list(value) == ["string_value"]:
            value = value["string_value"]  # one of `parameters`
        if isinstance(value, dict) and value:
            yield from _listed(value, at, f"{path}.")
        elif isinstance(value, dict):
            yield path, at, [True]
        elif not isinstance(value, list):
            yield path, at, [value]
        elif any(isinstance(v, dict) for part in value for v in _members(part)):
            yield path, at, None
        elif path == PREFERRED and not any(isinstance(v, list) for v in value):
            yield path, at, [value]  # of a repeated field one value, not alternatives
        else:
            yield path, at, value


def _unwrapped(value: Any) -> Any:
    """``[{count: [1, 2]}]`` is one group, and a list of one message that message."""
    inner = value
    while isinstance(inner, list) and len(inner) == 1:
        inner = inner[0]
    return inner if isinstance(inner, dict) else value


def _members(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _parameter(
    profile: Profile, config: Any, path: str, where: Location, values: list[Any] | None
) -> dict[str, Any] | None:
    """As the spec writes it; None if it cannot be carried over, or already is so."""
    reason = _UNSEARCHED.get(path) or _UNSEARCHED.get(path.split(".", maxsplit=1)[0])
    if reason is None and values is None:
        reason = "several messages; a spec searches their single fields, by path"
    if reason is None and values:
        reason = next((r for v in values if (r := _refusal(config, path, v))), None)
    if reason is not None or not values:
        if reason != _FIXED or not _as_it_is(config, path, values or []):
            profile.leave(where, reason or "no value")
        return None
    if _as_it_is(config, path, values):
        return None
    if any(isinstance(v, list) for v in values):
        return _sizes(profile, where, values)
    return {"choice": list(dict.fromkeys(values))}


def _refusal(config: Any, path: str, value: Any) -> str | None:
    """Why the model's config cannot have it."""
    batched = {DYNAMIC_BATCHING: True} if is_inside(path, DYNAMIC_BATCHING) else {}
    try:
        with_fields(config, {**batched, canonical(path): _field_value(value)})
    except SpecError as error:
        return error.message
    if path == MAX_BATCH_SIZE and value < 1:
        return "0 means no batch dimension, which changes the model's inputs"
    return None


def _as_it_is(config: Any, path: str, values: list[Any]) -> bool:
    """The only value is the one that the config has already."""
    try:
        return len(values) == 1 and get(config, path) == _field_value(values[0])
    except SpecError:
        return False


def _sizes(profile: Profile, where: Location, values: list[Any]) -> dict[str, Any]:
    """Lists of sizes: single ones as a choice, else every subset of them."""
    lists = [_members(v) for v in values]
    longest = max(len(sizes) for sizes in lists)
    single = list(dict.fromkeys(size for sizes in lists for size in sizes))
    if longest == 1:
        return {"choice": single}
    if len(lists) > 1 or longest > 2 or len(single) != longest:
        reason = "every subset of the sizes is searched, those lists among them"
    else:
        reason = "smaller sets of the sizes are searched as well"
    profile.leave(where, reason)
    return {"subsets": sorted(single), "at_most": longest}


def _bounds(profile: Profile) -> dict[str, dict[str, Any]]:
    """What Model Analyzer searches when no values are given."""
    least, most = (
        profile.take_number(f"run_config_search_{end}_instance_count") or default
        for end, default in zip(("min", "max"), INSTANCE_COUNTS, strict=True)
    )
    lowest, highest = (
        profile.take_number(f"run_config_search_{end}_model_batch_size") or default
        for end, default in zip(("min", "max"), MODEL_BATCH_SIZES, strict=True)
    )
    if least > most:
        raise profile.mistake(("run_config_search_max_instance_count",), f"is below {least}")
    if lowest > highest:
        message = f"is below {lowest}"
        raise profile.mistake(("run_config_search_max_model_batch_size",), message)
    sizes = []
    while lowest <= highest:
        sizes.append(lowest)
        lowest *= 2
    return {INSTANCES: {"int": [least, most]}, MAX_BATCH_SIZE: {"choice": sizes}}


def _by_itself(
    profile: Profile, config: Any, listed: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What every mode except a manual brute search varies by default, and switches on."""
    found = {
        path: parameter
        for path, parameter in _bounds(profile).items()
        if path not in listed and _is_settable(config, path)
    }
    inside = any(is_inside(path, DYNAMIC_BATCHING) for path in listed)
    off = config.WhichOneof("scheduling_choice") is None
    if off and not inside and MAX_BATCH_SIZE in {*found, *listed}:
        found[DYNAMIC_BATCHING] = {"choice": [True]}
    return found


def _leave_bounds(profile: Profile) -> None:
    for end in ("min", "max"):
        for what in ("instance_count", "model_batch_size"):
            option = f"run_config_search_{end}_{what}"
            if profile.take(option) is not None:
                profile.leave((option,), "Model Analyzer does not search it by itself here")


def _is_settable(config: Any, path: str) -> bool:
    if config.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        return False
    if path == MAX_BATCH_SIZE:
        return bool(config.max_batch_size > 0)
    return _refusal(config, path, 1) is None


def _without_useless(
    profile: Profile, config: Any, found: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Without fields of the batcher where nothing is batched, and what Triton would refuse."""
    sizes = found.get(MAX_BATCH_SIZE, {}).get("choice", [config.max_batch_size])
    kept = {}
    for path, parameter in found.items():
        batcher = path.split(".")[0] == DYNAMIC_BATCHING
        if batcher and max(sizes) < 2:
            batching: Location = (PARAMETERS, DYNAMIC_BATCHING)
            profile.leave(batching, f"with a max_batch_size of {max(sizes)} nothing is batched")
        elif path == PREFERRED and _smallest(parameter) > max(sizes):
            sizes_at: Location = (PARAMETERS, *PREFERRED.split("."))
            profile.leave(sizes_at, f"is above the largest max_batch_size, {max(sizes)}")
        elif path == PREFERRED and "subsets" in parameter:
            usable = [size for size in parameter["subsets"] if size <= max(sizes)]
            most = min(parameter["at_most"], max(2, len(usable)))
            kept[path] = {"subsets": usable, "at_most": most}
        else:
            kept[path] = parameter
    return kept


def _smallest(parameter: Mapping[str, Any]) -> int:
    return int(min(parameter.get("subsets") or parameter["choice"]))


def _field_value(value: Any) -> FieldValue:
    if isinstance(value, list):
        return tuple(value)
    found: FieldValue = value
    return found
