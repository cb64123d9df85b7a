"""From the spec's `space` and the model's config to a `Space`, or every mistake at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

from tuner.errors import NothingToSearchError, SpecError
from tuner.modelconfig.base import Base
from tuner.modelconfig.path import canonical, check_value, get, with_fields
from tuner.space import cache
from tuner.space.candidate import Candidate, FieldValue
from tuner.space.judge import refuse_broken, refuse_unmeasurable
from tuner.space.parameters import ChoiceParameter, Parameter, RangeParameter
from tuner.space.space import COUNTED_ONE_BY_ONE, Space
from tuner.spec.model import Spec
from tuner.spec.parameters import Choice, IntRange, ParameterSpec, Subsets
from tuner.spec.paths import CACHE_ENABLE, CACHE_SIZE, DYNAMIC_BATCHING, MAX_BATCH_SIZE, is_inside
from tuner.spec.units import parse_bytes


def build_space(
    spec: Spec,
    config: Base,
    positions: Mapping[str, str] | None = None,
    place: Callable[[str], str] = str,
) -> Space:
    """The space of a spec over a model.

    Args:
        spec: Its `space`, `server.args` and `server.mode` are used.
        config: The model's, as far as it is known.
        positions: Path as the spec writes it to ``file:line:column``, for the mistakes.
        place: Where a field of the model's config stands, for mistakes in the config.

    Raises:
        SpecError: Every wrong path, type or combination, one a line; or what is wrong with the
            model's config, whatever the space tries.
        NothingToSearchError: Nothing but the current config would be measured.
    """
    mistakes: dict[str, str] = {}
    parameters: dict[str, Parameter] = {}
    current = config.completed
    for path, given in spec.the_one.space.items():
        try:
            parameter = _parameter(path, given, current)
            if parameter.path in parameters:
                raise SpecError(f"the same field as {parameter.path} above")
            parameters[parameter.path] = parameter
        except (SpecError, ValueError) as error:
            hint = error.hint if isinstance(error, SpecError) else ""
            mistakes[path] = f"{error} ({hint})" if hint else str(error)
    mistakes |= _mistakes_between(parameters, spec, config)
    if mistakes:
        lines = _list_mistakes(mistakes, positions or {})
        raise SpecError(lines, "`tune init MODEL` drafts a valid spec")
    space = _assemble(parameters, spec, config)
    refuse_broken(space, place)
    _refuse_empty(space)
    return space


def _parameter(path: str, given: ParameterSpec, current: Any) -> Parameter:
    name = path if path == CACHE_SIZE else canonical(path)
    if isinstance(given, IntRange):
        low, high = given.int_
        special = () if given.or_ is None else (_value(name, given.or_),)
        parameter: Parameter = RangeParameter(name, low, high, given.step, given.log, special)
        tried: tuple[FieldValue, ...] = (low, high, *special)
    else:
        tried = _listed_values(name, given)
        parameter = ChoiceParameter(name, tried)
    if name != CACHE_SIZE:
        _check_values(name, tried, current)
    return parameter


def _listed_values(path: str, given: Choice | Subsets) -> tuple[FieldValue, ...]:
    if isinstance(given, Choice):
        return tuple(_value(path, value) for value in given.choice)
    unset: tuple[FieldValue, ...] = (None,) if given.or_ is not None else ()
    sizes = range(1, given.at_most + 1)
    return (*unset, *(s for n in sizes for s in combinations(sorted(given.subsets), n)))


def _value(path: str, given: bool | float | str) -> FieldValue:
    """The field's value for a word or number of the spec."""
    if given == "unset" and isinstance(given, str):
        return None
    if path == CACHE_SIZE:
        if isinstance(given, float) or given is True:
            raise SpecError(f"{given} is no size; write off, or bytes such as 64MiB")
        return None if given is False else parse_bytes(given)
    try:
        check_value(path, given)
    except SpecError:
        if given is False and _accepts(path, True):
            return None  # a message that is off is absent
        if isinstance(given, int) and _accepts(path, (given,)):
            return (given,)
        raise
    return given


def _accepts(path: str, value: FieldValue) -> bool:
    try:
        check_value(path, value)
    except SpecError:
        return False
    return True


def _check_values(path: str, values: tuple[FieldValue, ...], current: Any) -> None:
    """Each can be set in this model, and no two of them mean the same."""
    seen: dict[bytes, FieldValue] = {}
    inside = is_inside(path, DYNAMIC_BATCHING)
    batched = with_fields(current, {DYNAMIC_BATCHING: True}) if inside else current
    for value in values:
        message = with_fields(batched, {path: value})
        _refuse_unmeasurable(message)
        encoded = message.SerializeToString(deterministic=True)
        if encoded in seen:
            raise SpecError(f"{_show(seen[encoded])} and {_show(value)} are the same to Triton")
        seen[encoded] = value


def _refuse_unmeasurable(changed: Any) -> None:
    try:
        refuse_unmeasurable("the model", changed)
    except SpecError as error:
        text = f"cannot be searched: with it, {error.message}"
        raise SpecError(text, "take it out of the space") from error


def _mistakes_between(
    parameters: Mapping[str, Parameter], spec: Spec, config: Base
) -> dict[str, str]:
    """What is wrong with parameters only beside each other, the model or the server."""
    mistakes: dict[str, str] = {}
    batch = parameters.get(MAX_BATCH_SIZE)
    if batch is not None and any(not v for v in batch) and any(batch):
        mistakes[MAX_BATCH_SIZE] = (
            "unset means no batch dimension, which changes the model's inputs; write 1"
        )
    children = [p for p in parameters if is_inside(p, DYNAMIC_BATCHING)]
    unbatched = config.completed.max_batch_size < 2 and not config.leaves_batch_open
    if batch is None and unbatched and (children or DYNAMIC_BATCHING in parameters):
        mistakes[(children or [DYNAMIC_BATCHING])[0]] = (
            f"the model's max_batch_size is {config.completed.max_batch_size}, so nothing is "
            "batched; "
            "raise it in config.pbtxt, or add max_batch_size to the space"
        )
    try:
        cache.split_args(spec.server.args if CACHE_SIZE in parameters else ())
    except ValueError as error:
        mistakes[CACHE_SIZE] = f"cannot be searched: {error} (server.args)"
    return mistakes


def _assemble(parameters: Mapping[str, Parameter], spec: Spec, config: Base) -> Space:
    ordered = sorted(
        parameters.values(),
        key=lambda p: (p.path != CACHE_SIZE, p.path != MAX_BATCH_SIZE, p.path.count(".")),
    )
    args, size = spec.server.args, None
    if CACHE_SIZE in parameters:
        args, size = cache.split_args(args)
    space = Space(tuple(ordered), config, args)
    return replace(space, current=_current(space, size))


def _current(space: Space, cache_bytes: int | None) -> Candidate:
    """The owned fields as the model has them, in the space's words where it has some."""
    fields = {
        p.path: _current_value(p, space.base) for p in space.parameters if p.path != CACHE_SIZE
    }
    if space.batcher_implied or DYNAMIC_BATCHING in fields:
        fields[DYNAMIC_BATCHING] = get(space.base, DYNAMIC_BATCHING)
        if fields[DYNAMIC_BATCHING] is None:
            fields = {p: v for p, v in fields.items() if not is_inside(p, DYNAMIC_BATCHING)}
    if CACHE_SIZE in space.paths:
        enabled = get(space.base, CACHE_ENABLE) is True
        fields[CACHE_ENABLE] = True if enabled else None
    return Candidate.of_models({"": fields}, cache_bytes)


def _current_value(parameter: Parameter, message: Any) -> FieldValue:
    found = get(message, parameter.path)
    if found in parameter:
        return found
    options = [*(parameter.values if isinstance(parameter, ChoiceParameter) else parameter.special)]
    if isinstance(found, str) and found.isdigit():
        options.append(int(found))
    for value in options:
        if value in parameter and with_fields(message, {parameter.path: value}) == message:
            return value
    return found


def _refuse_empty(space: Space) -> None:
    left = _some(space)
    if not left:
        refused = next((space.violations(c) for c in space.combinations()), [])
        why = f": {refused[0].message}" if refused else ""
        raise NothingToSearchError(
            f"Triton would refuse every config of the space{why}", "widen the space of the spec"
        )
    if left == [space.canonical(space.current)]:
        raise NothingToSearchError(
            "the space holds nothing but the current config", "widen the space of the spec"
        )


def _some(space: Space) -> list[Candidate]:
    """Up to two candidates; those that are rare in a large space are sought by chance."""
    combinations_left = space.combinations()
    looked_at = islice(combinations_left, COUNTED_ONE_BY_ONE)
    found = list(islice((c for c in looked_at if not space.violations(c)), 2))
    if len(found) < 2 and next(combinations_left, None) is not None:
        rare = space.sample(random.Random(0))  # noqa: S311
        found += [] if rare is None or rare in found else [rare]
    return found


def _list_mistakes(mistakes: Mapping[str, str], positions: Mapping[str, str]) -> str:
    places = {path: f"{positions[path]}: " if path in positions else "" for path in mistakes}
    return "\n".join(f"{places[path]}space.{path}: {text}" for path, text in mistakes.items())


def _show(value: FieldValue) -> str:
    return "unset" if value is None else str(value)
