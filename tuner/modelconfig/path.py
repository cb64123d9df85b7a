"""Fields of a model config by path: check a path and its values, get, set.

The grammar of paths is that of `tuner.modelconfig.path_steps`; values are `FieldValue`s.

Protobuf does not distinguish a number, boolean or enum that is unset from one that is 0, False or
the first name: `get` answers with the latter as long as the message around it is
there. Only messages, lists, map entries, and everything inside an absent message, can be None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from tuner.errors import SpecError
from tuner.modelconfig.path_steps import Step, format_steps, parse_steps
from tuner.modelconfig.schema import ModelConfig
from tuner.modelconfig.values import FieldValue, from_wire, is_list, to_wire
from tuner.spec.units import count_text


def canonical(path: str) -> str:
    """The normal form: two paths with the same one name the same field in the same way."""
    return format_steps(parse_steps(path))


def check_value(path: str, value: FieldValue) -> None:
    """Raises:
    SpecError: ``value`` cannot be set at ``path``.
    """
    step = parse_steps(path)[-1]
    if value is not None and not _is_element(step):
        to_wire(path, step.leaf, value, step.is_parameter)
    elif value is not None and value is not True:
        raise SpecError(f"{path} is a message (true, or unset); {value!r} does not fit")


def get(message: ModelConfig, path: str) -> FieldValue:
    """The value at ``path``; see the module for what is None.

    Raises:
        SpecError: There is no such path, or it is ambiguous between several elements.
    """
    *parents, last = parse_steps(path)
    for step in parents:
        message = descend(message, step, path)
        if message is None:
            return None
    if last.field.message_type is None:
        return from_wire(last.field, getattr(message, last.field.name))
    inner = descend(message, last, path)
    if last.is_parameter:
        return None if inner is None else str(inner.string_value)
    if last.inner is None:
        return None if inner is None else from_wire(last.leaf, inner)
    return None if inner is None else True


def set_field(message: ModelConfig, path: str, value: FieldValue) -> None:
    """Sets ``path`` in place; None clears it.

    Messages on the way are created for a value, and left alone, even when empty, by a clear:
    ``dynamic_batching { }`` means something to Triton.

    Raises:
        SpecError: Wrong path or value, an ambiguous or missing element, or another member of
            the same oneof is set (``dynamic_batching`` beside ``sequence_batching``).
    """
    check_value(path, value)
    *parents, last = parse_steps(path)
    for step in parents:
        if value is None and _is_beyond(message, step):
            return
        inner = descend(message, step, path)
        if inner is None:
            if value is None:
                return
            inner = _create(message, step, path)
        message = inner
    if value is None:
        if not _is_beyond(message, last):
            _clear(message, last, path)
    else:
        _assign(message, last, path, value)


def with_fields(base: ModelConfig, fields: Mapping[str, FieldValue]) -> ModelConfig:
    """``base`` with `set_field` for each, in the order of `in_order` (a new message)."""
    message = deepcopy(base)
    for path, value in in_order(fields):
        set_field(message, path, value)
    return message


def in_order(fields: Mapping[str, FieldValue]) -> Iterable[tuple[str, FieldValue]]:
    """What is cleared comes first (it may make room in a oneof), then as Triton declares them."""

    def rank(item: tuple[str, FieldValue]) -> tuple[bool, list[int], str]:
        steps = parse_steps(item[0])
        return item[1] is not None, [step.field.index for step in steps], format_steps(steps)

    return sorted(fields.items(), key=rank)


def descend(message: Any, step: Step, path: str) -> Any:
    """What ``step`` leads to from ``message``, None when it is not there."""
    name = step.field.name
    if step.is_map:
        return getattr(message, name).get(step.key)
    if not is_list(step.field):
        return getattr(message, name) if message.HasField(name) else None
    index = element_index(message, step, path)
    return None if index is None else getattr(message, name)[index]


def element_index(message: Any, step: Step, path: str) -> int | None:
    """Which element of a repeated message ``step`` means; None when there is none yet.

    Raises:
        SpecError: Several elements match, or the position is beyond the last.
    """
    elements = getattr(message, step.field.name)
    if step.index is not None:
        if step.index < len(elements):
            return step.index
        if step.index == 0:
            return None
        many = count_text(len(elements), "element")
        name = step.field.name
        raise SpecError(
            f"{path}: {name} has only {many}",
            f"to add one, select it by a field, as {name}[field=value]",
        )
    matching = [i for i, element in enumerate(elements) if _matches(element, step)]
    if len(matching) > 1:
        name = step.field.name
        raise SpecError(
            f"{path}: {len(matching)} elements of {name} match",
            f"say which one: {name}[0], or {name}[field=value]",
        )
    return matching[0] if matching else None


def _is_beyond(message: Any, step: Step) -> bool:
    """A position behind the last element: nothing is there to be cleared."""
    return step.index is not None and step.index >= len(getattr(message, step.field.name))


def _matches(element: Any, step: Step) -> bool:
    for field, value in step.where:
        actual = getattr(element, field.name)
        if not (value in actual if is_list(field) else value == actual):
            return False
    return True


def _create(message: Any, step: Step, path: str) -> Any:
    name = step.field.name
    if step.is_map:
        return getattr(message, name)[step.key]
    if not is_list(step.field):
        _refuse_second_of_oneof(message, step, path)
        inner = getattr(message, name)
        inner.SetInParent()
        return inner
    element = getattr(message, name).add()
    for field, value in step.where:
        if is_list(field):
            getattr(element, field.name).append(value)
        else:
            setattr(element, field.name, value)
    return element


def _assign(message: Any, last: Step, path: str, value: FieldValue) -> None:
    if last.is_map and last.inner is None:
        getattr(message, last.field.name)[last.key] = to_wire(path, last.leaf, value)
    elif last.is_parameter:
        entry = getattr(message, last.field.name)[last.key]
        entry.string_value = to_wire(path, last.leaf, value, parameter=True)
    elif last.inner is not None:
        if descend(message, last, path) is None:
            _create(message, last, path)
    elif is_list(last.field):
        getattr(message, last.field.name)[:] = to_wire(path, last.field, value)
    else:
        _refuse_second_of_oneof(message, last, path)
        setattr(message, last.field.name, to_wire(path, last.field, value))


def _clear(message: Any, last: Step, path: str) -> None:
    name = last.field.name
    if last.is_map:
        getattr(message, name).pop(last.key, None)
    elif last.field.message_type is not None and is_list(last.field):
        index = element_index(message, last, path)
        if index is not None:
            del getattr(message, name)[index]
    else:
        message.ClearField(name)


def _is_element(step: Step) -> bool:
    """The path ends at an element of a repeated message: its presence is what is set."""
    return not step.is_map and step.field.message_type is not None and is_list(step.field)


def _refuse_second_of_oneof(message: Any, step: Step, path: str) -> None:
    oneof = step.field.containing_oneof
    present = message.WhichOneof(oneof.name) if oneof else None
    if present not in (None, step.field.name):
        raise SpecError(
            f"{path}: {step.field.name} and {present} exclude each other",
            f"clear {present} in the same candidate",
        )
