"""Builds a `Space` from the spec's `space` and the model's config, or reports every mistake.

The model's config is also checked separately: rules of Triton, and kinds of models that cannot be
measured.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

from tuner.errors import NothingToSearchError, SpecError
from tuner.modelconfig.base import Base
from tuner.modelconfig.path import canonical, check_value, get, with_fields
from tuner.modelconfig.queues import policy_of_queue
from tuner.modelconfig.rules import Violation
from tuner.modelconfig.schema import ModelConfig, batches_sequences, takes_sequences
from tuner.modelconfig.served import Served, ServedModel
from tuner.space.candidate import CACHE, Candidate, FieldValue, split_args, variable
from tuner.space.conditions import least_batch
from tuner.space.parameters import SERVER, ChoiceParameter, Knob, Parameter, RangeParameter
from tuner.space.space import COUNTED_ONE_BY_ONE, Space
from tuner.spec.fields import Choice, IntRange, ParameterSpec, Subsets
from tuner.spec.mistakes import Finding, FindingsError, listed
from tuner.spec.model import Spec
from tuner.spec.paths import (
    CACHE_ENABLE,
    CACHE_SIZE,
    DIRECT,
    DYNAMIC_BATCHING,
    MAX_BATCH_SIZE,
    OLDEST,
    SEARCHABLE,
    SLOT_UTILIZATION,
    VERSION_POLICY,
    is_inside,
    is_of_queue,
    is_searchable,
    unknown_field,
    variable_of,
)
from tuner.spec.runtimes import thread_count
from tuner.spec.server import ServerVariable
from tuner.spec.units import parse_bytes

#: By whose they are, and the path as the spec has it.
_Mistakes = dict[Knob, str]
#: What the steps of an ensemble have, each for itself.
_OF_STEPS = ("instance_group", "dynamic_batching", "sequence_batching")


def build_space(spec: Spec, served: Served) -> Space:
    """The space of a spec over its models.

    Raises:
        FindingsError: A `SpecError` with every wrong path, type or combination, or with mistakes in
            the models' configs that no candidate of the space corrects.
    """
    mistakes: _Mistakes = {}
    parameters: list[Parameter] = []
    spaces = {SERVER: spec.server.space, **{label: m.space for label, m in spec.models.items()}}
    for owner, given in spaces.items():
        parameters += _parameters(owner, given, served, mistakes)
    args, size = _server_args(spec, parameters, mistakes)
    if mistakes:
        raise FindingsError([_finding(knob, text) for knob, text in mistakes.items()])
    targets = tuple(dict.fromkeys(stream.model for stream in spec.streams.values()))
    more = {s.model for s in spec.streams.values() if s.batch_size > 1}
    one_row = tuple(
        model
        for model in targets
        if model not in more
        and not served.parents(model)
        and not batches_sequences(served.models[model].base.completed)
    )
    rows = dict[str, int]()
    for stream in spec.streams.values():
        for model in served.answering([stream.model]) if stream.batch_size > 1 else ():
            rows[model] = max(rows.get(model, 0), stream.batch_size)
    space = Space(tuple(parameters), served, targets, args, one_row, rows)
    space = replace(space, current=_current(space, size, spec.server.environment))
    refuse_broken(space)
    return space


def _parameters(
    owner: str, given: Mapping[str, ParameterSpec], served: Served, mistakes: _Mistakes
) -> list[Parameter]:
    """The parameters of one model, or of the server; parents come first."""
    by_path: dict[str, Parameter] = {}
    for path, values in given.items():
        try:
            if unknown := unknown_field(path):
                raise SpecError(unknown)
            if owner != SERVER:
                _refuse_of_the_model(canonical(path))
            parameter = parameter_of(Knob(owner, path), values)
            if owner != SERVER:
                _refuse_of_an_ensemble(parameter.path, served.models[owner])
                _check_values(parameter, served.models[owner].base.completed)
            if parameter.path in by_path:
                raise SpecError(f"the same field as {parameter.path} above")
            by_path[parameter.path] = parameter
        except (SpecError, ValueError) as error:
            hint = error.hint if isinstance(error, SpecError) else ""
            mistakes[Knob(owner, path)] = f"{error} ({hint})" if hint else str(error)
    if owner != SERVER:
        base = served.models[owner].base
        if base.known and base.leaves_batch_open and not base.completed.max_batch_size:
            by_path.pop(MAX_BATCH_SIZE, None)  # the server found no batch dimension
        mistakes |= _mistakes_between(by_path, owner, base)
    first = (MAX_BATCH_SIZE, SLOT_UTILIZATION)  # others of as many dots depend on them
    return sorted(by_path.values(), key=lambda p: (p.path.count("."), p.path not in first))


def _refuse_of_the_model(path: str) -> None:
    if not is_searchable(path):
        raise SpecError(
            "cannot be searched: it says what the model is, not how it runs",
            f"searched are {listed(SEARCHABLE)}, and what is inside; to compare variants of a "
            f"model, make each a version and search {VERSION_POLICY}.specific.versions",
        )


def _refuse_of_an_ensemble(path: str, model: ServedModel) -> None:
    head = re.split(r"[.\[]", path, maxsplit=1)[0]
    if head in _OF_STEPS and model.base.completed.HasField("ensemble_scheduling"):
        text = "an ensemble has no instances and no batcher"
        steps = f": {listed(model.parts)}," if model.parts else ", once it has some,"
        raise SpecError(text, f"search those of its steps{steps} under models")


def parameter_of(knob: Knob, given: ParameterSpec) -> Parameter:
    known = knob if knob.owner == SERVER else Knob(knob.owner, canonical(knob.path))
    if isinstance(given, IntRange):
        low, high = given.int_
        special = () if given.or_ is None else (_value(known.path, given.or_),)
        return RangeParameter(known, low, high, given.step, given.log, special)
    return ChoiceParameter(known, _listed_values(known.path, given))


def _listed_values(path: str, given: Choice | Subsets) -> tuple[FieldValue, ...]:
    if isinstance(given, Choice):
        return tuple(_value(path, value) for value in given.choice)
    unset: tuple[FieldValue, ...] = (None,) if given.or_ is not None else ()
    sizes = range(1, given.at_most + 1)
    return (*unset, *(s for n in sizes for s in combinations(sorted(given.subsets), n)))


def _value(path: str, given: bool | float | str | tuple[int, ...] | tuple[str, ...]) -> FieldValue:
    """The field's value for a word, a number or a list of the spec."""
    if given == "unset" and isinstance(given, str):
        return None
    if path == CACHE_SIZE:
        if isinstance(given, float | tuple) or given is True:
            raise SpecError(f"{given} is not a size; write off, or bytes such as 64MiB")
        return None if given is False else parse_bytes(given)
    if variable_of(path):
        return thread_count(given)
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


def _check_values(parameter: Parameter, current: Any) -> None:
    """Checks that each value can be set in this model, and that no two have the same effect."""
    seen: dict[bytes, FieldValue] = {}
    inside = is_inside(parameter.path, DYNAMIC_BATCHING)
    batched = with_fields(current, {DYNAMIC_BATCHING: True}) if inside else current
    batched = _without_other_strategy(batched, parameter.path)
    if isinstance(parameter, RangeParameter):
        tried: tuple[FieldValue, ...] = (parameter.low, parameter.high, *parameter.special)
    else:
        tried = parameter.values
    for value in tried:
        message = with_fields(batched, {parameter.path: value})
        _refuse_other_requests(message, current)
        encoded = message.SerializeToString(deterministic=True)
        if encoded in seen:
            raise SpecError(f"{_show(seen[encoded])} and {_show(value)} are the same to Triton")
        seen[encoded] = value


def _without_other_strategy(message: Any, path: str) -> Any:
    """The config without the strategy for sequences that excludes the one of ``path``."""
    for strategy, other in ((DIRECT, OLDEST), (OLDEST, DIRECT)):
        if path == strategy or is_inside(path, strategy):
            return with_fields(message, {other: None})
    return message


def _refuse_other_requests(changed: Any, current: Any) -> None:
    if takes_sequences(changed) != takes_sequences(current):
        what = "takes sequences" if takes_sequences(changed) else "takes no sequences any more"
        text = f"cannot be searched: with it, the model {what}"
        raise SpecError(text, "take it out of the space")


def _mistakes_between(parameters: Mapping[str, Parameter], owner: str, config: Base) -> _Mistakes:
    """Mistakes in combinations of a model's parameters, with each other or with the model."""
    mistakes: _Mistakes = {}
    batch = parameters.get(MAX_BATCH_SIZE)
    if batch is not None and any(not v for v in batch) and any(batch):
        mistakes[Knob(owner, MAX_BATCH_SIZE)] = (
            "unset means no batch dimension, which changes the model's inputs; write 1"
        )
    if batch is None and not config.leaves_batch_open:
        size = config.completed.max_batch_size
        least = least_batch(parameters, queued=bool(policy_of_queue(config.completed)))
        inside = [p for p in parameters if is_inside(p, DYNAMIC_BATCHING)]
        for path in (*inside, *(p for p in parameters if p == DYNAMIC_BATCHING)):
            if size < (least if path == DYNAMIC_BATCHING or is_of_queue(path) else 2):
                mistakes[Knob(owner, path)] = (
                    f"the model's max_batch_size is {size}, so nothing is batched; raise it in "
                    "config.pbtxt, or add max_batch_size to the space"
                )
                break
    return mistakes


def _server_args(
    spec: Spec, parameters: Sequence[Parameter], mistakes: _Mistakes
) -> tuple[tuple[str, ...], int | None]:
    """The server arguments without those that candidates set, and the cache size in them."""
    if all(p.knob != CACHE for p in parameters):
        return spec.server.args, None
    try:
        return split_args(spec.server.args)
    except ValueError as error:
        mistakes[CACHE] = f"cannot be searched: {error} (server.args)"
        return (), None


def _current(
    space: Space, cache_bytes: int | None, environment: Mapping[str, ServerVariable]
) -> Candidate:
    """The current values of the space's fields, in the form of the space's values if possible.

    Variables have the values of the spec: a server does not get those of tune's environment.
    """
    bases = {label: model.base.completed for label, model in space.served.models.items()}
    values: dict[Knob, FieldValue] = {
        p.knob: value_in(p, bases[p.knob.owner]) for p in space.parameters if p.knob.owner != SERVER
    }
    searched = [k for k in values if k.path == DYNAMIC_BATCHING]
    for batcher in (*searched, *(implied for implied, _ in space.implied_batchers)):
        values[batcher] = get(bases[batcher.owner], DYNAMIC_BATCHING)
        if values[batcher] is None:
            values = {k: v for k, v in values.items() if not k.is_inside(batcher)}
    for label in space.targets if space.caches else ():
        enabled = get(bases[label], CACHE_ENABLE) is True
        values[Knob(label, CACHE_ENABLE)] = True if enabled else None
    for name in filter(None, (variable_of(path) for path in space.paths)):
        given = environment[name].given if name in environment else None
        values[variable(name)] = thread_count(given)
    return Candidate({**values, CACHE: cache_bytes})


def value_in(parameter: Parameter, message: Any) -> FieldValue:
    """A field's value in a config, as the equal value of its parameter if there is one."""
    configured = get(message, parameter.path)
    if configured in parameter:
        return configured
    options = [*(parameter.values if isinstance(parameter, ChoiceParameter) else parameter.special)]
    if isinstance(configured, str) and configured.isdigit():
        options.append(int(configured))
    for value in options:
        ready = _without_other_strategy(message, parameter.path)
        if value in parameter and with_fields(ready, {parameter.path: value}) == message:
            return value
    return configured


def refuse_empty(space: Space) -> None:
    """Refuses a space without another config than the current one.

    Raises:
        NothingToSearchError: Only the current config would be measured.
    """
    left, text, hint = _some(space), "", "widen the space of the spec"
    if not left:
        text = "Triton would refuse every config of the space"
    elif left == [space.canonical(space.current)]:
        text = "the space holds nothing but the current config"
    if text:
        looked_at = filter(None, islice(space.steps(), COUNTED_ONE_BY_ONE))
        refused = next(filter(None, map(space.violations, looked_at)), [])
        why = f": {refused[0].message} ({space.served.place(refused[0])})" if refused else ""
        if not refused and space.sizes_without_effect:
            why = ": each request is sent alone, whatever max_batch_size is"
            hint = "add dynamic_batching to the space: {choice: [off, on]}"
        raise NothingToSearchError(f"{text}{why}", hint)


def _some(space: Space) -> list[Candidate]:
    """Up to two candidates; in a large space with few valid ones, by random draws."""
    steps = space.steps()
    looked_at = filter(None, islice(steps, COUNTED_ONE_BY_ONE))
    candidates = list(islice((c for c in looked_at if not space.violations(c)), 2))
    if len(candidates) < 2 and any(True for _ in islice(steps, 1)):
        rare = space.sample(random.Random(0))  # noqa: S311
        candidates += [] if rare is None or rare in candidates else [rare]
    return candidates


def _finding(knob: Knob, text: str) -> Finding:
    owner = ("server",) if knob.owner == SERVER else ("models", knob.owner)
    hint = "`tune init MODEL` drafts a valid spec"
    return Finding((*owner, "space", knob.path), text, key=True, hint=hint)


def _show(value: FieldValue) -> str:
    return "unset" if value is None else str(value)


def never_tried(space: Space) -> Iterator[str]:
    """Why no config with some value of the space would be loaded, a sentence each."""
    loaded = set[tuple[Knob, FieldValue]]()
    for parameter in space.parameters:
        for value in parameter if parameter.count <= _LISTED else ():
            if (parameter.knob, value) in loaded:
                continue
            one = ChoiceParameter(parameter.knob, (value,))
            others = tuple(one if p is parameter else p for p in space.parameters)
            with_it = replace(space, parameters=others)
            first = next(filter(None, islice(with_it.steps(), COUNTED_ONE_BY_ONE)), None)
            refused = space.violations(first) if first else []
            sample = with_it.sample(random.Random(0)) if refused else first  # noqa: S311
            loaded |= {*(sample.values.items() if sample else ())}
            if refused and sample is None:
                yield f"not tried: {refused[0].message} ({space.served.place(refused[0])})"


#: Most values of one parameter that are checked one by one.
_LISTED = 64
#: Enough to meet any value that makes the config valid, unless it is one of very many.
_DRAWS = 200
#: Backends whose models generate token by token, batched by the backend itself.
LLM_BACKENDS = frozenset({"vllm", "tensorrtllm"})


def refuse_broken(space: Space) -> None:
    """Refuses a current config that breaks a rule of Triton in every candidate, too.

    Raises:
        SpecError: The message has a line for each broken rule, with the place of the field.
    """
    lasting = space.served.violations(space.current.models)
    rng = random.Random(0)  # noqa: S311
    for _ in range(_DRAWS):
        if not lasting:
            return
        candidate = space.draw(rng)
        if candidate is not None:
            still = space.violations(candidate)
            lasting = [violation for violation in lasting if violation in still]
    if lasting:
        raise broken_config(lasting, space.served.place)


def broken_config(
    violations: Sequence[Violation], place: Callable[[Violation], str]
) -> FindingsError:
    hint = next((violation.hint for violation in violations if violation.hint), "")
    advice = f"fix the model's config first{f': {hint}' if hint else ''}"
    return FindingsError([Finding((), f.message, hint=advice, at=place(f)) for f in violations])


def refuse_unmeasurable(model: str, config: ModelConfig) -> None:
    """Refuses a model that does not answer each request separately.

    Raises:
        SpecError: Its requests have no latency to tune for; the hint says what to do.
    """
    if config.backend in LLM_BACKENDS:
        raise SpecError(
            f"{model} is a language model ({config.backend}): it batches inside its engine, and "
            "what counts are time to first token and time per token",
            "tune its engine's own parameters with NVIDIA's aiconfigurator or aiperf",
        )
