"""A dotted path through `ModelConfig`, parsed into steps that exist in its schema.

- ``max_batch_size``
- ``dynamic_batching``: a message, True when present
- ``instance_group.count``: the only element of a list of messages
- ``instance_group[0].count``: by position
- ``instance_group[kind=KIND_GPU,gpus=0].count``: the element whose fields have these values
- ``parameters.KEY``, ``parameters["odd.key"]``: an entry of a map
- ``dynamic_batching.priority_queue_policy[1].max_queue_size``
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tuner.errors import SpecError
from tuner.modelconfig.schema import new_config
from tuner.modelconfig.values import from_words, is_list, literal_words, type_name
from tuner.spec.mistakes import did_you_mean, meant_or_listed

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_SEGMENT = re.compile(
    r"""(?P<name>[^.\[\]"=\s]+)
        (?:\[(?P<selector>"(?:[^"\\]|\\.)*"|[^\]"]*)\])?
        (?:\.(?=[^.])|$)""",
    re.VERBOSE,
)
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")
_PARAMETER = "inference.ModelParameter"
#: Fields of which no number or switch chooses code.
_HARMLESS = (
    "dynamic_batching",
    "instance_group",
    "max_batch_size",
    "optimization",
    "response_cache",
    "sequence_batching",
)


@dataclass(frozen=True)
class Step:
    """One field on the way, and which of its elements when there can be many.

    Attributes:
        index: Position in a repeated message; None when not given.
        where: Conditions (field of the element, value) that select in a repeated message.
        key: Key in a map; None for anything else.
    """

    field: FieldDescriptor
    index: int | None = None
    where: tuple[tuple[FieldDescriptor, Any], ...] = ()
    key: str | int | None = None

    @property
    def is_map(self) -> bool:
        return is_map(self.field)

    @property
    def value_field(self) -> FieldDescriptor:
        """What the step reaches: the field itself, or the ``value`` of a map's entries."""
        return fields_of(self.field)["value"] if self.is_map else self.field

    @property
    def inner(self) -> Descriptor | None:
        """The message type sub-fields are looked up in; None for scalars."""
        return self.value_field.message_type

    @property
    def is_parameter(self) -> bool:
        """A map of `ModelParameter`: the path means its only field, ``string_value``."""
        return self.is_map and self.inner is not None and self.inner.full_name == _PARAMETER

    @property
    def leaf(self) -> FieldDescriptor:
        """The field whose type a value must have when the path ends with this step."""
        if self.is_parameter:
            return fields_of(self.value_field)["string_value"]
        return self.value_field


def fields_of(field: FieldDescriptor) -> Mapping[str, FieldDescriptor]:
    """The fields of the messages in a message field."""
    assert field.message_type is not None
    return field.message_type.fields_by_name


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


@lru_cache(maxsize=1024)
def parse_steps(path: str) -> tuple[Step, ...]:
    """The steps of ``path``.

    Raises:
        SpecError: It is not a path of ModelConfig; the message says what is known or meant.
    """
    segments = list(_segments(path))
    steps: list[Step] = []
    descriptor: Descriptor | None = new_config().DESCRIPTOR
    while segments:
        name, selector = segments.pop(0)
        if descriptor is None:
            raise _no_subfield(path, steps[-1], name)
        field = descriptor.fields_by_name.get(name)
        if field is None:
            raise _unknown(path, name, descriptor)
        if is_map(field):
            selector = _map_selector(path, field, selector, segments)
        step = _step(path, field, selector)
        if step.is_parameter and [s[0] for s in segments] == ["string_value"]:
            segments.clear()
        steps.append(step)
        descriptor = None if step.is_parameter else step.inner
    _refuse_circular_condition(path, steps)
    return tuple(steps)


def may_choose_code(path: str) -> bool:
    """Neither a number, a switch nor a choice of batching, instances and the like; or a text."""
    steps = parse_steps(path)
    fields = [steps[-1].leaf, *(field for step in steps for field, _ in step.where)]
    return steps[0].field.name not in _HARMLESS or any(f.type == f.TYPE_STRING for f in fields)


def format_steps(steps: tuple[Step, ...]) -> str:
    """The one way to write a path; `parse_steps` reads it back to the same steps."""
    text = ""
    for step in steps:
        text += f".{step.field.name}" if text else step.field.name
        if isinstance(step.key, str) and _PLAIN_KEY.fullmatch(step.key):
            text += f".{step.key}"
        elif step.key is not None:
            text += f"[{json.dumps(step.key, ensure_ascii=False)}]"
        elif step.index is not None:
            text += f"[{step.index}]"
        elif step.where:
            conditions = (f"{f.name}={literal_words(f, v)}" for f, v in step.where)
            text += f"[{','.join(conditions)}]"
    return text


def _segments(path: str) -> Iterator[tuple[str, str | None]]:
    position = 0
    while position < len(path) or not path:
        match = _SEGMENT.match(path, position)
        if match is None:
            raise SpecError(
                f"{path!r} is not a path in a model config (at character {position + 1})",
                "write field.field, list[0].field, list[name=value].field or map.key",
            )
        yield match["name"], match["selector"]
        position = match.end()


def _map_selector(
    path: str, field: FieldDescriptor, selector: str | None, rest: list[tuple[str, str | None]]
) -> str:
    """The key: in brackets, or the next segment (``parameters.KEY``)."""
    if selector is not None:
        return selector
    if not rest or rest[0][1] is not None:
        raise SpecError(
            f"{path!r} names the map {field.name}, not an entry of it",
            f'write {field.name}.KEY or {field.name}["KEY"]',
        )
    return rest.pop(0)[0]


def _step(path: str, field: FieldDescriptor, selector: str | None) -> Step:
    if is_map(field):
        return Step(field, key=_key(path, field, selector or ""))
    if selector is None:
        return Step(field)
    if not is_list(field) or field.message_type is None:
        raise SpecError(
            f"{path!r} selects in {field.name}, which is {type_name(field)}",
            "only lists of messages and maps have elements to choose from",
        )
    if re.fullmatch(r"[0-9]+", selector):
        return Step(field, index=int(selector))
    conditions = tuple(_condition(path, field, text) for text in selector.split(","))
    return Step(field, where=conditions)


def _key(path: str, field: FieldDescriptor, selector: str) -> str | int:
    key_field = fields_of(field)["key"]
    text = json.loads(selector) if selector.startswith('"') else selector
    key = from_words(key_field, text)
    if key is None:
        raise SpecError(
            f"{path!r}: {text!r} is not a key of {field.name}",
            f"its keys are {type_name(key_field)}",
        )
    assert isinstance(key, str | int)
    return key


def _condition(path: str, field: FieldDescriptor, text: str) -> tuple[FieldDescriptor, Any]:
    name, equals, words = text.partition("=")
    condition = fields_of(field).get(name.strip())
    if condition is None or not equals or condition.message_type is not None:
        known = [n for n, f in fields_of(field).items() if f.message_type is None]
        raise SpecError(
            f"{path!r}: [{text}] selects nothing in {field.name}",
            did_you_mean(name.strip(), known) or "write [0] or [name=value]",
        )
    value = from_words(condition, words.strip())
    if value is None:
        raise SpecError(f"{path!r}: {name} is {type_name(condition)}, not {words.strip()!r}")
    return condition, value


def _refuse_circular_condition(path: str, steps: list[Step]) -> None:
    for chosen, leaf in pairwise(steps):
        if any(condition.name == leaf.field.name for condition, _ in chosen.where):
            raise SpecError(
                f"{path!r} sets the field that selects the element",
                "select by position or by another field",
            )


def _no_subfield(path: str, step: Step, name: str) -> SpecError:
    if step.is_parameter:
        return SpecError(
            f"{path!r}: a parameter's value is text and has no field {name!r}",
            f'write a key with dots as parameters["{step.key}.{name}"]',
        )
    return SpecError(f"{path!r}: {step.field.name} is {type_name(step.leaf)}, it has no fields")


def _unknown(path: str, name: str, descriptor: Descriptor) -> SpecError:
    known = list(descriptor.fields_by_name)
    owner = descriptor.full_name.removeprefix("inference.")
    return SpecError(
        f"{path!r}: there is no field {name!r} in {owner}",
        meant_or_listed(name, known),
    )
