"""Changes single fields in the text of a config.pbtxt and nothing else.

Comments, order, spacing and line endings of everything that is not named stay byte for byte.
The result is parsed again and must be the message with exactly these fields changed.
"""

from __future__ import annotations

import difflib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.errors import TunerError
from tuner.modelconfig import layout
from tuner.modelconfig.encoding import as_python_reads
from tuner.modelconfig.layout import Splice
from tuner.modelconfig.message import parse
from tuner.modelconfig.path import descend, element_index, in_order, with_fields
from tuner.modelconfig.path_steps import Step, fields_of, parse_steps
from tuner.modelconfig.schema import ModelConfig, new_config, same_config
from tuner.modelconfig.tree import Element, Field, Items, Message, build, elements
from tuner.modelconfig.values import FieldValue, is_list, literal, to_wire

_NO_NEWLINE = "\\ No newline at end of file\n"


class EditError(TunerError):
    """The edited text does not mean what it should: a defect; nothing was changed."""


def edit(text: str, fields: Mapping[str, FieldValue]) -> str:
    """``text`` with ``fields`` set; None removes a field.

    The same text comes back when it already has these values. A comment inside a removed field, or
    behind it on its line, is removed too.

    Raises:
        SpecError: The text does not parse, or a path or value is wrong.
        EditError: The change cannot be made in this text.
    """
    config = parse(text)
    wanted = with_fields(config, fields)
    if same_config(wanted, config):
        return text
    for path, value in in_order(fields):
        after = with_fields(config, {path: value})
        if not same_config(after, config):
            text = _edit_field(text, config, path, value)
            config = after
    if not same_config(parse(text), wanted):
        raise EditError(f"the edited config is not the wanted one ({', '.join(fields)})")
    return text


def _edit_field(text: str, config: ModelConfig, path: str, value: FieldValue) -> str:
    """One field that has another value in ``config``, which is ``text`` parsed."""
    root = parent = build(text)
    message: Any = config
    steps = parse_steps(path)
    for position, step in enumerate(steps[:-1]):
        element = _find(text, parent, message, step, path)
        if element is None:
            return _add(text, root, parent, steps[position:], path, value)
        message = descend(message, step, path)
        inner = _inside(element, step)
        if inner is None:
            return _add_map_value(text, root, element.message, steps[position:], path, value)
        parent = inner
    last = steps[-1]
    if last.field.message_type is None:
        return _edit_scalar(text, root, parent, last, path, value)
    if value is None:
        return _remove(text, parent, message, last, path)
    element = _find(text, parent, message, last, path)
    if element is None:
        return _add(text, root, parent, steps[-1:], path, value)
    return _edit_map_value(text, root, element.message, last, path, value)


def _find(text: str, parent: Message, message: Any, step: Step, path: str) -> Element | None:
    """The message in the text that ``step`` means."""
    candidates = elements(parent, step.field.name)
    if step.is_map:
        same_key = [e for e in candidates if _key(text, e, step) == step.key]
        return same_key[-1] if same_key else None  # the last one counts
    if not is_list(step.field):
        return candidates[0] if candidates else None
    index = element_index(message, step, path)
    return None if index is None else candidates[index]


def _key(text: str, element: Element, step: Step) -> Any:
    from google.protobuf import message_factory, text_format

    assert step.field.message_type is not None
    entry: Any = message_factory.GetMessageClass(step.field.message_type)()
    body = text[element.message.body_start : element.message.body_end]
    text_format.Parse(as_python_reads(body), entry)
    return entry.key


def _inside(element: Element, step: Step) -> Message | None:
    """The message of the sub-fields; a map has them in the entry's ``value``, if there is one."""
    if not step.is_map:
        return element.message
    values = elements(element.message, "value")
    return values[0].message if values else None


def _edit_scalar(
    text: str, root: Message, parent: Message, last: Step, path: str, value: FieldValue
) -> str:
    """A number, name, string, or a list of them."""
    name = last.field.name
    occurrences = parent.named(name)
    if value is None or not occurrences:
        text = _remove_all(text, occurrences)
        return text if value is None else _add(text, root, parent, (last,), path, value)
    kept = occurrences[0] if is_list(last.field) else occurrences[-1]
    new = _literal(last, path, value, like=text[kept.value.start : kept.value.end])
    extra = occurrences[1:] if is_list(last.field) else ()
    text = _remove_all(text, extra)
    return layout.apply(text, [Splice(kept.value.start, kept.value.end, new)])


def _remove_all(text: str, fields: Sequence[Field]) -> str:
    for field in reversed(fields):
        text = layout.apply(text, [layout.remove_field(text, field)])
    return text


def _remove(text: str, parent: Message, message: Any, last: Step, path: str) -> str:
    """A message, an element of a list of them, or all entries of a map with one key."""
    element = _find(text, parent, message, last, path)
    if element is None:
        return text
    text = layout.apply(text, layout.remove_element(text, element))
    if last.is_map:  # an earlier entry with the same key may have come to light
        return _edit_field(text, parse(text), path, None)
    return text


def _edit_map_value(
    text: str, root: Message, entry: Message, last: Step, path: str, value: FieldValue
) -> str:
    """The value of a map entry that exists: text, or the text inside a `ModelParameter`."""
    holders = entry.named("value")
    if not holders:
        return _add_map_value(text, root, entry, (last,), path, value)
    if not last.is_parameter:
        new = _literal(last, path, value)
        return layout.apply(text, [Splice(holders[0].value.start, holders[0].value.end, new)])
    inner = holders[0].messages[0]
    leaf = Step(fields_of(last.value_field)["string_value"])
    return _edit_scalar(text, root, inner, leaf, path, to_wire(path, last.leaf, value, True))


def _add_map_value(
    text: str, root: Message, entry: Message, steps: Sequence[Step], path: str, value: FieldValue
) -> str:
    """Gives an entry that has only a key its ``value``."""
    lines = _value_lines(layout.indent_unit(text, root), steps, path, value)
    after = entry.fields[-1] if entry.fields else None
    return layout.apply(text, [layout.insert_field(text, root, entry, after, lines)])


def _add(
    text: str, root: Message, parent: Message, steps: Sequence[Step], path: str, value: FieldValue
) -> str:
    """Adds what is missing from ``steps[0]`` down to ``parent``."""
    unit = layout.indent_unit(text, root)
    first = steps[0]
    same = parent.named(first.field.name)
    if is_list(first.field) and first.field.message_type is not None and same:
        lines = _element_lines(unit, steps, path, value)
        if isinstance(same[-1].value, Items):
            return layout.apply(text, layout.insert_item(text, same[-1].value, lines))
        lines[0] = f"{first.field.name} {lines[0]}"
        after: Field | None = same[-1]
    else:
        lines = _field_lines(unit, steps, path, value)
        after = _predecessor(root, parent, first)
    return layout.apply(text, [layout.insert_field(text, root, parent, after, lines)])


def _predecessor(root: Message, parent: Message, step: Step) -> Field | None:
    """In the file, the last field that Triton's schema declares earlier; else the last field."""
    if parent is root:
        names = list(new_config().DESCRIPTOR.fields_by_name)
        rank = names.index(step.field.name)
        earlier = [f for f in parent.fields if names.index(f.name) < rank]
        if earlier:
            return earlier[-1]
    return parent.fields[-1] if parent.fields else None


def _field_lines(unit: str, steps: Sequence[Step], path: str, value: FieldValue) -> list[str]:
    """The field ``steps[0]`` with everything below it, as text."""
    first = steps[0]
    name = first.field.name
    if first.field.message_type is None:
        return [f"{name}: {_literal(first, path, value)}"]
    lines = _element_lines(unit, steps, path, value)
    if is_list(first.field) and not first.is_map:
        return [f"{name} [", *(unit + line for line in lines), "]"]
    return [f"{name} {lines[0]}", *lines[1:]]


def _element_lines(unit: str, steps: Sequence[Step], path: str, value: FieldValue) -> list[str]:
    """The message of ``steps[0]``: ``{``, what selects it, what is below it, ``}``."""
    first, *rest = steps
    if first.is_map:
        key = literal(fields_of(first.field)["key"], first.key)
        body = [f"key: {key}", *_value_lines(unit, steps, path, value)]
    else:
        body = [f"{field.name}: {_wire_literal(field, item)}" for field, item in first.where]
        body += _field_lines(unit, rest, path, value) if rest else []
    return ["{", *(unit + line for line in body), "}"] if body else ["{ }"]


def _value_lines(unit: str, steps: Sequence[Step], path: str, value: FieldValue) -> list[str]:
    """The ``value`` of a map entry."""
    first, *rest = steps
    if first.is_parameter:
        return [f"value {{ string_value: {_literal(first, path, value)} }}"]
    if first.inner is None:
        return [f"value: {_literal(first, path, value)}"]
    body = _field_lines(unit, rest, path, value) if rest else []
    return ["value {", *(unit + line for line in body), "}"] if body else ["value { }"]


def _literal(step: Step, path: str, value: FieldValue, like: str = "") -> str:
    wire = to_wire(path, step.leaf, value, step.is_parameter)
    return _wire_literal(step.leaf, wire, like)


def _wire_literal(field: Any, wire: Any, like: str = "") -> str:
    """In the style of ``like``: brackets only around several values, space inside or not."""
    if not is_list(field):
        return literal(field, wire)
    values = wire if isinstance(wire, list) else [wire]
    text = ", ".join(literal(field, item) for item in values)
    if like and not like.startswith("[") and len(values) == 1:
        return text
    pad = "" if like.startswith("[") and not like[1:2].isspace() else " "
    return f"[{pad}{text}{pad}]"


def unified_diff(before: str, after: str, name: str) -> str:
    """The unified diff that ``patch -p1`` takes; empty when the texts are equal."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _lines(text: str) -> list[str]:
    """Splits on newlines only, as `patch` does; str.splitlines splits on more."""
    return io.StringIO(text, newline="\n").readlines()
