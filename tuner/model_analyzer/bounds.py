"""Bounds of Model Analyzer's own search, for the fields and the load that a spec bounds too.

Release 1.58 searches instances, batch sizes and loads between ``run_config_search_min_*`` and
``run_config_search_max_*``, unless the YAML lists what to try.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tuner.model_analyzer.yaml_file import Profile
from tuner.modelconfig.backends import is_ensemble
from tuner.modelconfig.traps import fixed_batch
from tuner.space.draft_space import DraftedModel, why_unbatched
from tuner.space.experts import EXPERTS, UNKNOWN
from tuner.spec.mistakes import listed
from tuner.spec.paths import INSTANCES, MAX_BATCH_SIZE

#: Model Analyzer's bounds where the YAML has one of the two.
_DEFAULTS = {
    "instance_count": (1, 5),
    "model_batch_size": (1, 128),
    "concurrency": (1, 1024),
    "request_rate": (16, 8192),
}
_RATE_SEARCH = "request_rate_search_enable"
_IDLE = "Model Analyzer ignores it beside {}"


def bounded(
    profile: Profile,
    models: Mapping[str, DraftedModel],
    listed_fields: Mapping[str, Collection[str]],
    parameters: str,
) -> dict[str, dict[str, dict[str, Any]]]:
    """The values of drafted fields, by the model's name and the path.

    Args:
        listed_fields: The fields whose values are listed, by the model's name.
        parameters: The option that lists them.

    Raises:
        SpecError: A bound is no number, or they contradict each other.
    """
    searched = {n: part for n, part in models.items() if not is_ensemble(part.config)}
    idle = _disabled(profile) or (
        parameters
        if profile.values.get("run_config_search_mode", "brute") == "brute"
        and profile.values.get(parameters)
        else ""
    )
    fields = {name: dict[str, dict[str, Any]]() for name in searched}
    for kind, path in (("instance_count", INSTANCES), ("model_batch_size", MAX_BATCH_SIZE)):
        bounds = _bounds(profile, kind)
        if bounds is None:
            continue
        if idle:
            _leave(profile, kind, _IDLE.format(idle))
            continue
        for name, part in searched.items():
            values: dict[str, Any]
            if path in listed_fields.get(name, ()):
                values, why = {}, _IDLE.format(f"the {path} of {parameters}")
            elif path == INSTANCES:
                values, why = _counts(part, bounds)
            else:
                values, why = _sizes(part, bounds)
            if values:
                fields[name][path] = values
            if why:
                _leave(profile, kind, f"{name}: {why}" if len(searched) > 1 else why)
    return {name: space for name, space in fields.items() if space}


def bounded_load(profile: Profile, arrivals: dict[str, Any]) -> dict[str, Any]:
    """The load with the upper end of its search; a list of loads stays as it is.

    Raises:
        SpecError: As `bounded`.
    """
    rates, clients = _bounds(profile, "request_rate"), _bounds(profile, "concurrency")
    of_rates = rates is not None or _is_on(profile.without(_RATE_SEARCH), _RATE_SEARCH)
    kind, bounds = ("request_rate", rates) if of_rates else ("concurrency", clients)
    if of_rates and clients is not None:
        _leave(profile, "concurrency", _IDLE.format("a search of request rates"))
    if bounds is None:
        return arrivals
    if idle := "a list of loads" if arrivals else _disabled(profile):
        _leave(profile, kind, _IDLE.format(idle))
        return arrivals
    least, most = bounds
    if least > 1 and (low := f"run_config_search_min_{kind}") in profile.values:
        profile.leave((low,), "a spec bounds the search of a load from above only")
    return (
        {"kind": "poisson", "max_rate": most}
        if of_rates
        else {"kind": "closed", "max_concurrency": most}
    )


def leave_load_bounds(profile: Profile, reason: str) -> None:
    """Lists the bounds of loads as left."""
    for kind in ("concurrency", "request_rate"):
        if _bounds(profile, kind) is not None:
            _leave(profile, kind, reason)


def _disabled(profile: Profile) -> str:
    option = "run_config_search_disable"
    return option if _is_on(profile, option) else ""


def _is_on(profile: Profile, option: str) -> bool:
    return profile.values.get(option) is True


def _bounds(profile: Profile, kind: str) -> tuple[int, int] | None:
    """Both bounds where the YAML has at least one."""
    ends = []
    for end, default in zip(("min", "max"), _DEFAULTS[kind], strict=True):
        option = f"run_config_search_{end}_{kind}"
        value = profile.take(option, int)
        if value is not None and value < 1:
            raise profile.mistake((option,), "1 or more is expected")
        ends.append((option, value, default))
    (least_option, least, first), (_, most, last) = ends
    if least is None and most is None:
        return None
    low, high = least or min(first, most or first), most or max(last, least or last)
    if low > high:
        raise profile.mistake((least_option,), f"{low} is above the other end, {high}")
    return low, high


def _leave(profile: Profile, kind: str, reason: str) -> None:
    for end in ("min", "max"):
        if (option := f"run_config_search_{end}_{kind}") in profile.values:
            profile.leave((option,), reason)


def _counts(part: DraftedModel, bounds: tuple[int, int]) -> tuple[dict[str, Any], str]:
    """Numbers of instances, and what is left of the bounds."""
    groups = len(part.config.instance_group)
    if groups > 1:
        return {}, f"config.pbtxt has {groups} instance groups: bound each in the spec"
    lowest, highest = bounds
    return ({"choice": [lowest]} if lowest == highest else {"int": [lowest, highest]}), ""


def _sizes(part: DraftedModel, bounds: tuple[int, int]) -> tuple[dict[str, Any], str]:
    """Batch sizes, each twice the one before, and what is left of the bounds."""
    config, sizes = part.config, [bounds[0]]
    if fixed := next(fixed_batch(config), None):
        return {}, fixed[1]
    if why := why_unbatched(config, completes=part.completes):
        return {}, why
    while 2 * sizes[-1] <= bounds[1]:
        sizes.append(2 * sizes[-1])
    if EXPERTS.get(config.backend, UNKNOWN).larger or not config.max_batch_size:
        return {"choice": sizes}, ""
    fit = [size for size in sizes if size <= config.max_batch_size]
    large = [size for size in sizes if size not in fit]
    why = f"{listed(large)} above the model's max_batch_size, {config.max_batch_size}"
    return ({"choice": fit} if fit else {}), why if large else ""
